"""The watch over the mirror: observes, judges, remembers, reports; and the alarm of a watch that
hangs.

The watch over the mirror: it looks, judges, remembers, and tells what begins and what is over. It
changes nothing.

It is a program of its own, because it must go on where the mirror has ended, and may watch a
MirrorMaker 2 that others run.

Sees to it that the watch looks. A look that does not end is an alarm within the minute, and at last
the end of the process.

A client of Kafka may wait for ever for threads of its own (`hourmark.kafka.clients`), and nothing
ends a thread of Python from outside. Whoever supervises the watch starts it anew, and alarms that
stand are remembered.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark.process.alarms import Alarm, AlarmLog, AlarmName
from hourmark_mirror.watch.alarms import AlarmLimits, WatchResult, evaluate_alarms
from hourmark_mirror.watch.metrics import MirrorMetrics
from hourmark_mirror.watch.observation import Observation, WatchState
from hourmark_mirror.watch.watch_state_store import WatchStateStore

_LOG = logging.getLogger(__name__)

OBSERVE_INTERVAL_S: Final = 10.0
UNWATCHED_S: Final = 45.0  # so long without a look is an alarm of its own; named within the minute


class Observer(Protocol):
    """`looking.Looker`."""

    def observe(self, before: WatchState) -> Observation: ...


class MirrorWatch:
    """One look after the other, told in the log and as metrics."""

    def __init__(
        self,
        looks: Observer,
        memory: WatchStateStore,
        limits: AlarmLimits,
        metrics: MirrorMetrics,
        clock: Clock,
    ) -> None:
        self._looks, self._memory, self._limits = looks, memory, limits
        self._metrics, self._clock = metrics, clock
        self._looked_s = self._began_s = clock.monotonic_s()
        self._log, self._telling = AlarmLog(), threading.Lock()
        self._unwatched: list[Alarm] = []

    def observe(self, *, accept: bool = False) -> WatchResult:
        """One look; what stands now, and what is verified.

        Unavailable where a cluster does not answer, or where the look is not remembered: what it
        found is told before.

        `accept`: what stood is told no more; what this look finds is.
        """
        with self._memory.locked() as before:
            seen = self._looks.observe(before)
            found = evaluate_alarms(seen, before, self._limits, accept=accept)
            self._metrics.record_observation(seen, found)
            self._tell([*found.alarms, *self._unwatched])
            self._memory.save(found.memory)
        self._looked_s, self._unwatched = self._clock.monotonic_s(), []
        self._tell(found.alarms)
        return found

    def run(self, stopping: threading.Event) -> None:
        """Look every `LOOK_S` until it is set.

        Clusters that are away end nothing, and no loss that stands from before.
        """
        try:
            with self._memory.locked() as before:
                self._tell(before.standing)
        except Unavailable as error:
            self._blind(error)
        while not stopping.is_set():
            self._began_s = self._clock.monotonic_s()
            try:
                self.observe()
            except Unavailable as error:
                self._blind(error)
            stopping.wait(OBSERVE_INTERVAL_S)

    @property
    def observing_s(self) -> float:
        """Seconds since the look under way began; of none, since the last one did."""
        return self._clock.monotonic_s() - self._began_s

    def report_unwatched(self, why: str) -> None:
        """Tell that nobody looks, where that is so for too long. For any thread."""
        blind_s = self._clock.monotonic_s() - self._looked_s
        if blind_s >= UNWATCHED_S:
            text = f"nobody could look at the mirror for {blind_s:.0f} s: {why}"
            others = [alarm for alarm in self._log.alarms if alarm.name != AlarmName.UNWATCHED]
            self._unwatched = [Alarm(AlarmName.UNWATCHED, "mirror", text)]
            self._tell([*others, *self._unwatched])

    def _blind(self, error: Unavailable) -> None:
        _LOG.info("no look at the mirror: %s", error)
        self.report_unwatched(str(error))

    def _tell(self, alarms: Sequence[Alarm]) -> None:
        with self._telling:
            self._log.tell(alarms)
            self._metrics.record_alarms(alarms)


PAUSE_S: Final = 5.0
STUCK_S: Final = 600.0  # far more than a look takes that waits for brokers again and again


def _end() -> None:
    os._exit(1)  # what stands still is in the way of any other end


class StuckWatchMonitor:
    """Of one watch, in a thread of its own."""

    def __init__(self, watch: MirrorWatch, end: Callable[[], None] = _end) -> None:
        self._watch, self._end = watch, end

    def start(self, stopping: threading.Event) -> None:
        """Begin; until it is set."""
        threading.Thread(target=self._run, args=(stopping,), name="overseer", daemon=True).start()

    def check(self) -> None:
        """Whether a look goes on for too long, now."""
        going_on_s = self._watch.observing_s
        if going_on_s >= STUCK_S:
            _LOG.critical(
                "a look at the mirror has not ended for %.0f s; the watch ends, and must "
                "be started again",
                going_on_s,
            )
            self._end()
        elif going_on_s >= UNWATCHED_S:
            self._watch.report_unwatched(f"a look has not ended for {going_on_s:.0f} s")

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(PAUSE_S):
            self.check()
