"""A worker that runs and answers nobody is seen, and one that was not asked is not blamed."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from tests.support.clock import FakeClock
from tests.support.http_server import Answering, serving

from hourmark_mirror.run import stalls
from hourmark_mirror.run.stalls import PAUSED_BLIND_S, POLL_INTERVAL_S, SILENT_S, ResponseDetector


class NotFound(Answering):
    """As MirrorMaker 2's REST answers whoever is no worker."""

    def do_GET(self) -> None:
        self.answer(404, b"")


@contextlib.contextmanager
def silent(port: int) -> Iterator[None]:
    """Takes connections there and answers nothing, as a process that is paused."""
    with socket.create_server(("127.0.0.1", port)):
        yield


def failures(watch: ResponseDetector, clock: FakeClock, seconds: float) -> int:
    """How many it tells, looked at every POLL_INTERVAL_S for so long."""
    found = 0
    for _ in range(round(seconds / POLL_INTERVAL_S)):
        clock.advance(POLL_INTERVAL_S)
        found = len(watch.failures())
    return found


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "ANSWER_S", 0.05)


def test_a_worker_that_answers_no_more_has_failed() -> None:
    clock = FakeClock()
    with serving(NotFound) as address:
        port = int(address.rpartition(":")[2])
        watch = ResponseDetector("127.0.0.1", port, clock)
        assert failures(watch, clock, 2 * SILENT_S) == 0, "any answer is one"
    with silent(port):
        assert failures(watch, clock, SILENT_S - POLL_INTERVAL_S) == 0
        assert failures(watch, clock, POLL_INTERVAL_S) == 1
        watch.start_run()
        assert failures(watch, clock, 10 * SILENT_S) == 0, (
            "a new run has not listened yet: its start is watched elsewhere"
        )


def test_a_watch_that_stood_still_itself_begins_to_wait_anew() -> None:
    clock = FakeClock()
    with serving(NotFound) as address:
        port = int(address.rpartition(":")[2])
        watch = ResponseDetector("127.0.0.1", port, clock)
        assert failures(watch, clock, POLL_INTERVAL_S) == 0
    with silent(port):
        clock.advance(SILENT_S + PAUSED_BLIND_S)
        assert watch.failures() == []
        assert failures(watch, clock, SILENT_S - POLL_INTERVAL_S) == 0
        assert failures(watch, clock, POLL_INTERVAL_S) == 1
