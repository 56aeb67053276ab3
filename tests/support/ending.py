"""What a test session started ends with it, however it ends: servers, daemons, and whatever these
started.

Each process that a session starts, or that such a one starts, has the session in its environment.
SIGTERM, SIGHUP and Ctrl-C end a session as Ctrl-C ends pytest: fixtures take down what they made.
What is left then is killed; what a session left that was itself killed is ended by the next one.
The servers of a home that `HOURMARK_TEST_HOME` names are left as they are, by all sessions.
"""

from __future__ import annotations

import contextlib
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
SESSION: Final = "TEST_SESSION_OF_HOURMARK"
SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_ending = False


def pytest_configure(config: pytest.Config) -> None:
    """Begin: end what dead sessions left, and name this one to all that is started from now on."""
    _kill(lambda session: not is_alive(session))
    named = os.environ.get("HOURMARK_TEST_HOME")
    kept = f"{Path(named).absolute()}/" if named else ""
    os.environ[SESSION] = f"{os.getpid()}@{start_id(os.getpid())}@{kept}"
    _listen()


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
        raise KeyboardInterrupt(signal.Signals(number).name)


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
