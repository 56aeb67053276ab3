"""What a test session started ends with it, however it ends: servers, daemons, and whatever these
started.

Each process that a session starts, or that such a one starts, has the session in its environment.
SIGTERM, SIGHUP and Ctrl-C end a session as Ctrl-C ends pytest: fixtures take down what they made.
What is left then is killed; what a session left that was itself killed is ended by the next one.
The servers of a home that `HOURMARK_TEST_HOME` names are left as they are, by all sessions.

The workers of pytest-xdist belong to the session of the process that started them. It passes the
signal on to them, waits until they have taken down their servers, and kills what is left.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

import psutil
import pytest

from hourmark_infra.stack.process import MARK, Process, is_alive, start_id

# not HOURMARK_…, as tests drop settings of Hourmark from environments
# Sessions that a test starts have a value of their own in TEST_SESSIONS_APART. A session that begins
# at the same time does not end what they left.
SESSION: Final = f"TEST_SESSION_OF_HOURMARK{os.environ.get('TEST_SESSIONS_APART', '')}"
SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# Time for a worker to stop its servers. pytest-xdist kills it after 10 seconds.
WORKER_EXIT_SECONDS: Final = 180
WORKER_PROGRAM: Final = "exec(eval(sys.stdin.readline()))"  # how execnet starts a worker
_ending = False


def pytest_configure(config: pytest.Config) -> None:
    """Begin: end what dead sessions left, and name this one to all that is started from now on."""
    _listen()
    if is_worker(config):
        return
    if config.pluginmanager.hasplugin("xdist"):
        manager = importlib.import_module("xdist.workermanage").NodeManager
        manager.EXIT_TIMEOUT = WORKER_EXIT_SECONDS
    _kill(lambda session: not is_alive(session))
    named = os.environ.get("HOURMARK_TEST_HOME")
    kept = f"{Path(named).absolute()}/" if named else ""
    os.environ[SESSION] = f"{os.getpid()}@{start_id(os.getpid())}@{kept}"


def is_worker(config: pytest.Config) -> bool:
    """Return whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def pytest_runtest_logstart(nodeid: str, location: tuple[str, int | None, str]) -> None:
    """Commands that a test runs within this process may have taken the signals for themselves."""
    _listen()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """From here on all is being taken down, and nothing interrupts that."""
    global _ending
    _ending = True
    _listen()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The end: whatever is left."""
    if is_worker(config):
        return
    own = Process(os.getpid(), start_id(os.getpid()) or "")
    _kill(lambda session: session == own)


def _listen() -> None:
    for number in SIGNALS:
        signal.signal(number, _on_signal)


def _on_signal(number: int, _: FrameType | None) -> None:
    """The first one ends the session; none interrupts its end."""
    global _ending
    if not _ending:
        _ending = True
        for worker in _workers():
            worker.terminate()
        raise KeyboardInterrupt(signal.Signals(number).name)


def _workers() -> list[psutil.Process]:
    """Return the workers that pytest-xdist started from this process."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(WORKER_PROGRAM in word for word in child.cmdline()):
                found.append(child)
    return found


def _kill(concerns: Callable[[Process], bool]) -> None:
    """SIGKILL the processes of those sessions, but for the servers of a home that its session was
    to leave as it is.
    """
    for candidate in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if candidate.uids().real != os.getuid() or candidate.pid == os.getpid():
                continue
            environment = candidate.environ()
            if SESSION not in environment:
                continue
            pid, started, kept = environment[SESSION].split("@", 2)
            left = bool(kept) and environment.get(MARK, "").startswith(kept)
            if concerns(Process(int(pid), started)) and not left:
                candidate.kill()
