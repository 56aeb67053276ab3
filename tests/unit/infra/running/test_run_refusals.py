"""What `hourmark run` refuses before it starts a server, and how it says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.support.waiting import wait_for

from hourmark.errors import Unavailable, UsageError
from hourmark_infra.components import Components, child_environment
from hourmark_infra.locks import exclusive_lock
from hourmark_infra.running.cli import find_new_logs
from hourmark_infra.running.run import Run
from hourmark_infra.running.stack_holder import describe_conflict, record_applied_configuration
from hourmark_infra.stack.control import LocalStack

SETTINGS = """
[types]
dir = "{types}"

[[tailer.sources]]
name = "app"
paths = ["/var/log/app.log"]
"""
TYPE = """
name = "app"
[line]
payload = "text"
field = "message"
time = "observed"
[[fields]]
name = "message"
type = "string"
"""
SOURCE = '[[source]]\nname = "app"\nformat = "free"\ntypes = ["app"]\n'


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A function that runs a configuration of this text, and returns the error."""

    def start_stack(*_: object, **__: object) -> None:
        pytest.fail("the stack was started")

    monkeypatch.setattr(LocalStack, "load_or_create", start_stack)
    (tmp_path / "types").mkdir()
    (tmp_path / "types/app.toml").write_text(TYPE)
    (tmp_path / "types/sources.toml").write_text(SOURCE)

    def run(settings: str) -> str:
        file = tmp_path / "hourmark.toml"
        file.write_bytes(settings.encode(errors="surrogateescape"))
        with pytest.raises(UsageError) as error:
            Run(tmp_path / "home", file, FakeClock(), print).run_once()
        return str(error.value)

    return run


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("parsing = 3\n", "parsing"),
        ('[parsing]\nbucket_seconds = "x"\n', "parsing.bucket_seconds = 'x'"),
        ("[parsing]\nbucket_seconds = 7\n", "parsing.bucket_seconds"),
        ("tailer = 3\n", "tailer"),
        ("[tailer]\nnothing = 1\n", "tailer.nothing"),
        ("# \udcff\n", "hourmark.toml is not valid TOML"),
    ],
)
def test_a_wrong_setting_is_named_before_servers_start(
    refused: Callable[[str], str], settings: str, named: str
) -> None:
    assert named in refused(settings)


def test_a_wrong_declaration_is_named_before_servers_start(
    refused: Callable[[str], str], tmp_path: Path
) -> None:
    settings = SETTINGS.format(types=tmp_path / "types")
    (tmp_path / "types/app.toml").write_text(TYPE.replace('type = "string"', 'type = "strin"'))
    assert "types/app.toml" in refused(settings)
    (tmp_path / "types/app.toml").unlink()
    assert "which no file declares" in refused(settings)
    assert "does not exist" in refused(SETTINGS.format(types=tmp_path / "gone"))


def test_a_file_in_a_folder_below_a_pattern_is_new(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("app.log", "sub/app.log"):
        (tmp_path / name).write_text("x\n")
    settings = f'[[tailer.sources]]\nname = "app"\npaths = ["{tmp_path}/*.log"]\n'
    logs = [tmp_path / "app.log", tmp_path / "sub/app.log"]
    assert find_new_logs(logs, settings, print) == (logs[1],), "`*` does not match a slash"


def test_the_proposal_uses_the_stack_and_the_launcher_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # `hourmark init` reads the bucket length of the stack in HOURMARK_HOME
    monkeypatch.setenv("HOURMARK_HOME", "/some/home")
    monkeypatch.setenv("HOURMARK_CALLED", "./hourmark")
    monkeypatch.setenv("HOURMARK_CONFIG", "/other.toml")
    environment = child_environment()
    assert environment["HOURMARK_HOME"] == "/some/home"
    assert environment["HOURMARK_CALLED"] == "./hourmark"
    assert "HOURMARK_CONFIG" not in environment


def run_command(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hourmark", "run", *arguments],
        cwd=folder,
        env={**os.environ, "HOURMARK_HOME": str(folder / "home"), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_second_run_in_the_same_home_is_refused_and_names_the_first(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "home/run/lock", lambda: None):
        (tmp_path / "home/run/lock").write_text("4711")
        done = run_command(tmp_path, "--once")
    assert done.returncode == 1
    assert "another `hourmark run` (process 4711)" in done.stderr
    assert "HOURMARK_HOME" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["tailer = 3\n", "[tailer]\nsources = 3\n", "# \udcff"])
def test_a_wrong_configuration_is_named_when_a_file_joins(tmp_path: Path, settings: str) -> None:
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline/hourmark.toml").write_bytes(settings.encode(errors="surrogateescape"))
    (tmp_path / "a.log").write_text("x\n")
    done = run_command(tmp_path, "--once", "a.log", "--yes")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pipeline/hourmark.toml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_home_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_command(tmp_path, "--once", HOURMARK_HOME=str(tmp_path / "file/home"))
    assert done.returncode == 2
    assert "HOURMARK_HOME" in done.stderr and "file/home" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_run_under_nohup_survives_the_end_of_its_terminal(tmp_path: Path) -> None:
    # The command waits for the lock of the stack, which this test holds.
    (tmp_path / "pipeline/types").mkdir(parents=True)
    (tmp_path / "pipeline/types/app.toml").write_text(TYPE)
    (tmp_path / "pipeline/types/sources.toml").write_text(SOURCE)
    (tmp_path / "pipeline/hourmark.toml").write_text(
        SETTINGS.format(types=tmp_path / "pipeline/types")
    )
    with (
        exclusive_lock(tmp_path / "home/stack.lock", lambda: None),
        (tmp_path / "said").open("w") as said,
        subprocess.Popen(
            ["nohup", sys.executable, "-m", "hourmark", "run"],
            cwd=tmp_path,
            env={**os.environ, "HOURMARK_HOME": str(tmp_path / "home")},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        ) as process,
    ):
        try:
            wait_for(lambda: "changes this stack" in (tmp_path / "said").read_text(), "it waits")
            process.send_signal(signal.SIGHUP)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 130
        finally:
            process.kill()


class Scripted(Components):
    """Components whose commands exit with a code, and count how often they are run."""

    code = 0

    def command(self, *arguments: str) -> list[str]:
        script = "import sys; open(sys.argv[1], 'a').write('x'); sys.exit(int(sys.argv[2]))"
        return [sys.executable, "-c", script, str(self.home / "runs"), str(self.code), *arguments]


@pytest.mark.parametrize(("code", "error", "runs"), [(2, UsageError, 1), (1, Unavailable, 4)])
def test_a_command_that_was_used_wrongly_is_not_repeated(
    tmp_path: Path, code: int, error: type[Exception], runs: int
) -> None:
    components = Scripted(tmp_path, tmp_path / "x", tmp_path, FakeClock())
    components.code = code
    with pytest.raises(error, match="failed"):
        components.run_repeatable("types", "apply", seconds=60)
    assert (tmp_path / "runs").read_text() == "x" * runs


def test_a_new_configuration_is_refused_while_the_stack_holds_another_one(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other/hourmark.toml"
    new = tmp_path / "pipeline/hourmark.toml"
    assert describe_conflict(home, new) is None, "nothing was applied"
    other.parent.mkdir()
    other.write_text("")
    record_applied_configuration(home, other)
    assert describe_conflict(home, other) is None
    assert describe_conflict(home, new) is None, "there is no stack, or it was purged"
    (home / "stack").mkdir()
    (home / "stack/hourmark.toml").write_text("")
    said = describe_conflict(home, new) or ""
    assert f"holds the types of {other}" in said and "HOURMARK_HOME" in said
    assert f"hourmark init FILE… --out {other.parent}" in said
    other.unlink()
    assert describe_conflict(home, new) is None, "it was moved: `types apply` decides"


@pytest.mark.slow
def test_a_file_in_another_folder_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other/hourmark.toml"
    (home / "stack").mkdir(parents=True)
    (home / "stack/hourmark.toml").write_text("")
    other.parent.mkdir()
    other.write_text("")
    record_applied_configuration(home, other)
    (tmp_path / "a.log").write_text("x\n")
    done = run_command(tmp_path, "--once", "a.log", "--yes")
    assert done.returncode == 2
    assert f"holds the types of {other}" in done.stderr
    assert not (tmp_path / "pipeline").exists()
