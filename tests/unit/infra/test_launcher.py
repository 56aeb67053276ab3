"""`./hourmark`: finds itself through links, and once set up does nothing but run."""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]
_LOCKS = (
    "core/pyproject.toml",
    "requirements.lock",
    "infra/launcher/uv.lock",
    "infra/launcher/build.lock",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in a folder with a space, set up with a Python that only says how it was
    called.
    """
    here = tmp_path / "a checkout"
    for name in ("hourmark", *_LOCKS):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, here / name)
    python = here / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf \'[%s]\' "$HOURMARK_HOME" "$@"\n')
    python.chmod(0o755)
    locks = "".join((here / name).read_text() for name in _LOCKS)
    (here / ".venv" / "hourmark.stamp").write_text(f"{here}\n{locks}")
    return here


def _run(
    program: Path | str, *arguments: str, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **environment}
    return subprocess.run(
        [program, *arguments], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )


def test_the_launcher_is_plain_shell() -> None:
    subprocess.run(["sh", "-n", ROOT / "hourmark"], check=True)


def test_arguments_reach_the_command_unchanged(checkout: Path, tmp_path: Path) -> None:
    done = _run(checkout / "hourmark", "bucket", "a b", "*", cwd=tmp_path)
    assert done.stdout == f"[{checkout}/.hourmark][{checkout}/.venv/bin/hourmark][bucket][a b][*]"


def test_it_finds_its_checkout_through_links_from_another_folder(
    checkout: Path, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "first").symlink_to("../a checkout/hourmark")
    (tmp_path / "second").symlink_to(tmp_path / "bin" / "first")
    assert (
        f"[{checkout}/.venv/bin/hourmark]" in _run(tmp_path / "second", cwd=tmp_path / "bin").stdout
    )


def test_it_tells_how_it_was_called(checkout: Path) -> None:
    (checkout / ".venv" / "bin" / "python").write_text('#!/bin/sh\nprintf %s "$HOURMARK_CALLED"\n')
    for cwd, typed in ((checkout, "./hourmark"), (checkout.parent, "a checkout/hourmark")):
        assert _run(typed, cwd=cwd).stdout == typed


def test_a_home_that_is_named_is_kept(checkout: Path, tmp_path: Path) -> None:
    assert _run(checkout / "hourmark", cwd=tmp_path, HOURMARK_HOME="/elsewhere").stdout.startswith(
        "[/elsewhere]"
    )


def test_without_a_python_it_says_in_one_line_what_helps(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".venv" / "hourmark.stamp").unlink()
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "dirname", "readlink", "sed", "cat", "cmp"):
        found = shutil.which(tool)
        assert found
        (tools / tool).symlink_to(found)
    done = _run(checkout / "hourmark", cwd=tmp_path, PATH=str(tools))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "apt-get install python3" in done.stderr


def test_a_changed_lock_is_noticed(checkout: Path, tmp_path: Path) -> None:
    (checkout / "requirements.lock").write_text("")
    done = _run(checkout / "hourmark", cwd=tmp_path)
    assert (
        done.returncode != 0
    )  # this half checkout has no set-up program, which is what was looked for
    assert "make_venv.py" in done.stderr


def test_packages_can_be_installed_where_no_room_is_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location(
        "make_venv", ROOT / "infra" / "launcher" / "make_venv.py"
    )
    assert spec is not None and spec.loader is not None
    launcher = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(launcher)
    ran: list[list[str]] = []

    def succeed(command: list[str], **_: object) -> SimpleNamespace:
        ran.append(command)
        (tmp_path / ".venv").mkdir(exist_ok=True)
        return SimpleNamespace(returncode=0)

    def set_up() -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("stamp"))
        launcher.main()

    (tmp_path / "hourmark").touch()
    monkeypatch.setattr(sys, "argv", ["make_venv.py", str(tmp_path)])
    monkeypatch.setattr(subprocess, "run", succeed)
    monkeypatch.setattr(os, "sync", lambda: None)
    set_up()
    assert "sync" in ran[-1], "nothing is installed of rooms"
    (tmp_path / "core" / "hourmark").mkdir(parents=True)
    (tmp_path / "core" / "pyproject.toml").touch()
    set_up()
    assert ran[-1][-2:] == ["--editable", str(tmp_path / "core")]
