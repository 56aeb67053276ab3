"""`hourmark init` and `run` in surroundings that are not as usual: no traceback, and a next step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMANDS = pytest.mark.parametrize("command", ["init a.log --yes", "run --once a.log --yes"])


def said_in(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The result of a shell script, in which `$hourmark` is the command."""
    program = f"{sys.executable} -m hourmark"
    return subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        env={**os.environ, "hourmark": program, "HOURMARK_HOME": str(folder / "home")}
        | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@COMMANDS
def test_a_deleted_current_folder(tmp_path: Path, command: str) -> None:
    done = said_in(tmp_path, f"mkdir d; cd d; rmdir ../d; $hourmark {command}")
    assert done.returncode == 1
    assert "the current folder was deleted; change to another one" in done.stderr
    assert "Traceback" not in done.stderr


@COMMANDS
@pytest.mark.parametrize("there", ["file", "link to nothing"])
def test_a_configuration_folder_that_is_none(tmp_path: Path, command: str, there: str) -> None:
    (tmp_path / "a.log").write_text("2026-11-21 10:00:00 INFO one\n")
    if there == "file":
        (tmp_path / "pipeline").write_text("")
    else:
        (tmp_path / "pipeline").symlink_to("nowhere/at/all")
    done = said_in(tmp_path, f"$hourmark {command}")
    assert done.returncode != 0
    assert "pipeline" in done.stderr
    assert "Traceback" not in done.stderr
