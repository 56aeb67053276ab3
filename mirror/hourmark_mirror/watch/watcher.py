"""Watch over the mirror: observes, evaluates, stores state, reports alarms, detects its own hangs.

The watch is a separate program, because it must continue when the mirror has ended and may watch a
MirrorMaker 2 that others run. It changes nothing.

A Kafka client may wait forever for its own threads (`hourmark.kafka.clients`), and Python cannot
end a thread from outside. An observation that hangs therefore raises an alarm within a minute and
finally ends the process. The supervisor of the watch restarts it, and stored alarms are kept.
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
from hourmark_mirror.watch.observation import MirrorObservation, WatchState
from hourmark_mirror.watch.watch_state_store import WatchStateStore

_LOG = logging.getLogger(__name__)

OBSERVE_INTERVAL_S: Final = 10.0
# Time without an observation until the alarm, which is raised within a minute.
UNWATCHED_S: Final = 45.0


class ObservationSource(Protocol):
    """Source of observations, such as `MirrorObserver`."""

    def observe(self, before: WatchState) -> MirrorObservation: ...


class MirrorWatcher:
    """Watch that repeatedly observes a mirror, stores the watch state and reports alarms.

    Alarms go to the log and to metrics. `report_unwatched` and `observing_s` may be called from
    other threads.
    """

    def __init__(
        self,
        observer: ObservationSource,
        store: WatchStateStore,
        limits: AlarmLimits,
        metrics: MirrorMetrics,
        clock: Clock,
    ) -> None:
        """Create a watch; it does not observe before `observe` or `run` is called.

        Args:
            observer: Source of observations.
            store: Durable watch state.
            limits: Thresholds of the alarms.
            metrics: Metrics to set after each observation.
            clock: Source of monotonic time.
        """
        self._observer, self._store, self._limits = observer, store, limits
        self._metrics, self._clock = metrics, clock
        self._observed_s = self._began_s = clock.monotonic_s()
        self._log, self._report_lock = AlarmLog(), threading.Lock()
        self._unwatched: list[Alarm] = []

    def observe(self, *, accept: bool = False) -> WatchResult:
        """Observe the mirror once, report and store the result, and return it.

        Args:
            accept: Discard earlier losses; those found by this observation are still reported.

        Raises:
            Unavailable: A cluster does not answer, or the state cannot be stored; alarms are
                reported before the state is stored.
            UsageError: The state file is damaged or its folder cannot be used.
        """
        with self._store.locked() as before:
            observation = self._observer.observe(before)
            found = evaluate_alarms(observation, before, self._limits, accept=accept)
            self._metrics.record_observation(observation, found)
            self._report([*found.alarms, *self._unwatched])
            self._store.save(found.state)
        self._observed_s, self._unwatched = self._clock.monotonic_s(), []
        self._report(found.alarms)
        return found

    def run(self, stopping: threading.Event) -> None:
        """Observe the mirror every 10 seconds until `stopping` is set.

        Losses from earlier runs are reported first. If a cluster is unavailable, the error is
        logged and the watch continues.

        Raises:
            UsageError: The state file is damaged or its folder cannot be used.
        """
        try:
            with self._store.locked() as before:
                self._report(before.standing)
        except Unavailable as error:
            self._report_error(error)
        while not stopping.is_set():
            self._began_s = self._clock.monotonic_s()
            try:
                self.observe()
            except Unavailable as error:
                self._report_error(error)
            stopping.wait(OBSERVE_INTERVAL_S)

    @property
    def observing_s(self) -> float:
        """Return the seconds since the last observation began, whether or not it has ended."""
        return self._clock.monotonic_s() - self._began_s

    def report_unwatched(self, reason: str) -> None:
        """Report the alarm `mirror-unwatched` if no observation succeeded for 45 seconds.

        May be called from any thread.

        Args:
            reason: Reason to state in the alarm.
        """
        blind_s = self._clock.monotonic_s() - self._observed_s
        if blind_s >= UNWATCHED_S:
            text = f"the mirror could not be observed for {blind_s:.0f} s: {reason}"
            others = [alarm for alarm in self._log.alarms if alarm.name != AlarmName.UNWATCHED]
            self._unwatched = [Alarm(AlarmName.UNWATCHED, "mirror", text)]
            self._report([*others, *self._unwatched])

    def _report_error(self, error: Unavailable) -> None:
        _LOG.info("the mirror could not be observed: %s", error)
        self.report_unwatched(str(error))

    def _report(self, alarms: Sequence[Alarm]) -> None:
        with self._report_lock:
            self._log.update(alarms)
            self._metrics.record_alarms(alarms)


PAUSE_S: Final = 5.0
STUCK_S: Final = 600.0  # far longer than an observation that repeatedly waits for brokers


def _end() -> None:
    os._exit(1)  # the stuck thread would block a regular exit


class StuckWatchMonitor:
    """Monitor that raises an alarm, and finally ends the process, if an observation hangs.

    Runs in a daemon thread of its own, because Python cannot interrupt a thread that hangs.
    """

    def __init__(self, watch: MirrorWatcher, end: Callable[[], None] = _end) -> None:
        self._watch, self._end = watch, end

    def start(self, stopping: threading.Event) -> None:
        """Start the daemon thread, which runs until `stopping` is set."""
        threading.Thread(
            target=self._run, args=(stopping,), name="stuck-watch-monitor", daemon=True
        ).start()

    def check(self) -> None:
        """Report an alarm if an observation has run for 45 s; end the process after 600 s."""
        observing_s = self._watch.observing_s
        if observing_s >= STUCK_S:
            _LOG.critical(
                "an observation of the mirror has been running for %.0f s; the watch exits and must "
                "be restarted",
                observing_s,
            )
            self._end()
        elif observing_s >= UNWATCHED_S:
            self._watch.report_unwatched(f"an observation has been running for {observing_s:.0f} s")

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(PAUSE_S):
            self.check()
