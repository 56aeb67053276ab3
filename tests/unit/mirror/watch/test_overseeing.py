"""A look that does not end: an alarm while it goes on, and over once it has ended; at last the
watch is ended.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.unit.mirror.watch.test_watching import Played, alarms_of, watch

from hourmark.process.alarms import AlarmName
from hourmark_mirror.watch.watcher import STUCK_S, UNWATCHED_S, StuckWatchMonitor


class Slow:
    """A watch of which the second look takes so long; the overseer sees to it right before that
    ends.
    """

    def __init__(self, folder: Path, takes_s: float) -> None:
        self.played, self.clock, self.ended = Played(), FakeClock(), 0
        self.watching, self.metrics = watch(folder, self.played, self.clock)
        self.overseer = StuckWatchMonitor(self.watching, self._end)
        self.stopping = threading.Event()
        self._takes_s, self._looks = takes_s, 0
        self.seen: dict[str, float] = {}
        self.played.looked = self._looked
        self.watching.run(self.stopping)

    def _looked(self) -> None:
        self._looks += 1
        if self._looks == 2:
            self.clock.sleep(self._takes_s)
            self.overseer.check()
            self.seen = alarms_of(self.metrics)
            self.stopping.set()

    def _end(self) -> None:
        self.ended += 1


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourmark_mirror.watch.watcher.OBSERVE_INTERVAL_S", 0.0)


def test_a_look_that_does_not_end_is_an_alarm_until_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow(tmp_path, UNWATCHED_S)
    assert slow.seen == {AlarmName.UNWATCHED: 1} and not slow.ended
    assert (
        "the mirror could not be observed for 45 s: an observation has been running for 45 s"
        in caplog.text
    )
    assert alarms_of(slow.metrics) == {}, "it has ended"


def test_a_look_that_takes_its_time_is_none(tmp_path: Path) -> None:
    assert Slow(tmp_path, UNWATCHED_S - 1).seen == {}


def test_a_watch_that_stands_still_is_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert Slow(tmp_path, STUCK_S).ended == 1
    assert (
        "an observation of the mirror has been running for 600 s; the watch exits and must be restarted"
        in caplog.text
    )


def test_clusters_that_are_away_end_nothing(tmp_path: Path) -> None:
    played, clock, stopping = Played(), FakeClock(), threading.Event()
    watching, metrics = watch(tmp_path, played, clock)
    ended: list[int] = []
    overseer = StuckWatchMonitor(watching, lambda: ended.append(1))
    played.away, until_s = True, clock.monotonic_s() + 2 * STUCK_S

    def looked() -> None:
        clock.sleep(30)
        overseer.check()
        if clock.monotonic_s() > until_s:
            stopping.set()

    played.looked = looked
    watching.run(stopping)
    assert not ended and alarms_of(metrics) == {AlarmName.UNWATCHED: 1}
