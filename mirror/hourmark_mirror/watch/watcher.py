"""Watch over the mirror: observes, evaluates, stores state, reports alarms, detects its own hangs.

The watch is a separate program, because it must continue after the mirror has exited, and because
it can also watch a MirrorMaker 2 that is managed by others. It changes nothing.

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
    """Interface for reading the state of both clusters of a mirror, as `MirrorObserver` does.

    `observe` takes the stored state after the previous observation and returns the current state of
    both clusters. It raises `Unavailable` if a cluster does not respond.
    """

    def observe(self, before: WatchState) -> MirrorObservation: ...


class MirrorWatcher:
    """Observes a mirror repeatedly, and reports alarms in the log and in metrics.

    The state is stored after each observation. `report_unwatched` and `observing_s` may be called
    from other threads.
    """

    def __init__(
        self,
        observer: ObservationSource,
        store: WatchStateStore,
        limits: AlarmLimits,
        metrics: MirrorMetrics,
        clock: Clock,
    ) -> None:
        """Create a watcher. Call `observe` or `run` to make the first observation.

        Args:
            observer: Source of observations.
            store: Storage for the state between observations.
            limits: Alarm thresholds.
            metrics: Metrics to set after each observation.
            clock: Source of monotonic time.
        """
        self._observer, self._store, self._limits = observer, store, limits
        self._metrics, self._clock = metrics, clock
        self._observed_s = self._began_s = clock.monotonic_s()
        self._log, self._report_lock = AlarmLog(), threading.Lock()
        self._unwatched: list[Alarm] = []

    def observe(self, *, accept: bool = False) -> WatchResult:
        """Observe the mirror once, report its alarms, and store the new state.

        Args:
            accept: Whether to stop reporting losses of records that earlier observations found.
                Losses found by this observation are still reported.

        Returns:
            Alarms and verified topics.

        Raises:
            Unavailable: A cluster does not respond, or the state cannot be stored. In the latter
                case, the alarms have already been reported.
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

        The call blocks. Alarms about lost records from earlier runs are reported first. If a
        cluster is unavailable, the error is logged, and the loop continues.

        Args:
            stopping: Event that ends the loop.

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
        """Return the number of seconds since the most recent observation began.

        The value keeps increasing until the next observation begins. A high value indicates that an
        observation hangs. Thread-safe.
        """
        return self._clock.monotonic_s() - self._began_s

    def report_unwatched(self, reason: str) -> None:
        """Raise the alarm `mirror-unwatched` if no observation has succeeded for 45 seconds.

        Does nothing if an observation has succeeded more recently. Thread-safe.

        Args:
            reason: Reason to include in the alarm text.
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
    """Raises an alarm if an observation of the mirror hangs, and eventually exits the process.

    The monitor runs in a separate daemon thread, because Python cannot interrupt a thread that
    hangs.

    Args:
        watch: Watcher whose observations are monitored.
        end: Function that ends the process. By default, the process exits immediately with code 1.
    """

    def __init__(self, watch: MirrorWatcher, end: Callable[[], None] = _end) -> None:
        self._watch, self._end = watch, end

    def start(self, stopping: threading.Event) -> None:
        """Start a daemon thread that calls `check` every 5 seconds.

        Args:
            stopping: Event that ends the thread.
        """
        threading.Thread(
            target=self._run, args=(stopping,), name="stuck-watch-monitor", daemon=True
        ).start()

    def check(self) -> None:
        """Check once whether the watcher's last observation hangs.

        If the observation began at least 45 seconds ago, and none has succeeded within 45 seconds,
        the alarm `mirror-unwatched` is reported. If it began at least 600 seconds ago, a critical
        error is logged, and the process exits.
        """
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
