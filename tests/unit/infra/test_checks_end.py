"""Whatever ends `hourmark test`, no server that its tests started outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.support.waiting import wait_for

from hourmark_infra.stack.process import Process, find_by_mark_prefix, is_alive

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = ("-q", "-p", "tests.support.ending", "-p", "no:cacheprovider", "-c", "pyproject.toml")
PYTEST = (sys.executable, "-m", "pytest", *OPTIONS)

# One server that a fixture takes down, and one that nobody would: its starter was cut short.
TESTS = """
import os, sys, time
from pathlib import Path
import pytest
from hourmark_infra.stack.process import is_alive, spawn

FOLDER = Path(__file__).parent

def server(name):
    program = [sys.executable, "-c", "import time; time.sleep(300)"]
    return spawn(program, dict(os.environ), f"{FOLDER}/stack::{name}", FOLDER / "log")

@pytest.fixture(scope="session")
def stack():
    taken_down = server("taken-down")
    yield
    time.sleep(0.5)  # as a server takes to stop: nothing may cut it short
    os.kill(taken_down.pid, 15)
    (FOLDER / "finalised").touch()

def test_that_lasts(stack):
    server("forgotten")
    (FOLDER / "began").touch()
    time.sleep(300)
"""
RUN = """
import sys
from pathlib import Path
from hourmark_infra.checks.running import Check, Output, run_checks
options = ("-q", "-p", "tests.support.ending", "-p", "no:cacheprovider", "-c", "pyproject.toml")
pytest = (sys.executable, "-m", "pytest", *options, *sys.argv[1:])
lane = (Check("pytest", pytest, Output.AS_IT_COMES), Check("later", ("touch", sys.argv[1] + ".later")))
beside = (Check("beside", ("sleep", "300")), Check("later beside", ("touch", sys.argv[1] + ".later")))
sys.exit(run_checks((lane, beside), Path.cwd()))
"""


@pytest.fixture(autouse=True)
def sessions_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other test sessions on this machine leave the servers of these sessions to them."""
    monkeypatch.setenv("TEST_SESSIONS_APART", f"_{uuid.uuid4().hex}")


def servers_below(folder: Path) -> list[Process]:
    return [process for found in find_by_mark_prefix(f"{folder}/").values() for process in found]


def kill_servers(folder: Path) -> None:
    for process in servers_below(folder):
        os.kill(process.pid, signal.SIGKILL)


@contextmanager
def checks(folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`hourmark test`'s checks, of which the first is a test session with servers that has
    begun.
    """
    file = folder / "test_servers.py"
    file.write_text(TESTS)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(file), *options],
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    ) as run:
        try:
            wait_for((folder / "began").exists, "the tests run", 60)
            yield run
        finally:
            run.kill()
            kill_servers(folder)


@pytest.mark.parametrize(
    ("number", "to_group", "options"),
    [
        (signal.SIGTERM, False, ()),
        (signal.SIGTERM, False, ("--numprocesses", "1")),
        pytest.param(signal.SIGHUP, False, (), marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, False, (), marks=pytest.mark.slow),
        (signal.SIGINT, True, ()),
    ],
    ids=["SIGTERM", "SIGTERM-with-workers", "SIGHUP", "SIGINT", "SIGINT-as-a-terminal-sends-it"],
)
def test_servers_end_with_it(
    tmp_path: Path, number: signal.Signals, to_group: bool, options: tuple[str, ...]
) -> None:
    with checks(tmp_path, *options) as run:
        servers = servers_below(tmp_path)
        assert len(servers) == 2
        (os.killpg if to_group else os.kill)(run.pid, number)
        wait_for(
            lambda: run.poll() is not None or (tmp_path / "finalised").exists(),
            "the end begins",
            60,
        )
        run.send_signal(number)  # an impatient second one changes nothing
        assert run.wait(60) == 128 + number
        assert not any(is_alive(server) for server in servers)
        assert (tmp_path / "finalised").exists(), "fixtures took down what they had made"
        assert not Path(f"{tmp_path}/test_servers.py.later").exists(), "no other check was begun"


@pytest.mark.slow
def test_servers_of_a_home_that_was_named_are_left_by_this_session_and_the_next(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_it.py").write_text(
        TESTS.replace("time.sleep(300)\n", "pass\n").replace("os.kill(", "print(")
    )
    named = {**os.environ, "HOURMARK_TEST_HOME": str(tmp_path)}
    run = [*PYTEST, str(tmp_path / "test_it.py")]
    try:
        subprocess.run(run, cwd=ROOT, env=named, check=True, capture_output=True)
        subprocess.run([*run, "--collect-only"], cwd=ROOT, check=True, capture_output=True)
        assert len(servers_below(tmp_path)) == 2
    finally:
        kill_servers(tmp_path)


@pytest.mark.slow
def test_servers_of_a_session_that_was_killed_are_ended_by_the_next(tmp_path: Path) -> None:
    with checks(tmp_path) as run:
        servers = servers_below(tmp_path)
        session, beside = sorted(
            psutil.Process(run.pid).children(), key=lambda child: child.name() == "sleep"
        )
        run.kill()
        session.kill()
        beside.kill()
        session.wait(10)
        assert all(is_alive(server) for server in servers)
        subprocess.run(
            [*PYTEST, "--collect-only", __file__], cwd=ROOT, check=True, capture_output=True
        )
        assert not any(is_alive(server) for server in servers)
