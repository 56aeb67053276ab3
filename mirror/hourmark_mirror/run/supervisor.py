"""Keeps MirrorMaker 2 running: detects failures, logs them and restarts it with increasing pauses.

Failures are the end of the process, a failed connector or task, stalled partitions and a process
that does not answer (`stalls`). One failed task restarts the whole process, because its partitions
stay stalled while the others continue. Exactly-once support makes a restart harmless: the open
transaction is aborted, and copying resumes from the committed positions.

The supervisor survives unavailable clusters: a detector that cannot read them reports no failure
and retries later. Only an error at the first start ends it, because that one indicates an invalid
setting; later start errors (a replaced Java, a key, a full disk) are retried.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from confluent_kafka import KafkaException

from hourmark.clock import Clock
from hourmark.config.groups import KafkaCluster
from hourmark.errors import HourmarkError
from hourmark.kafka.compacted_topic import TopicFollower
from hourmark.kafka.mirror import CONNECTOR
from hourmark_mirror.run.task_status import ConnectorTaskFailure, TaskStates, status_topic

_LOG = logging.getLogger(__name__)

DETECT_INTERVAL_S: Final = 2.0  # between polls of the detectors; the process itself every POLL_S
POLL_S: Final = 0.25
GRACE_S: Final = 4.0  # during a rebalance, a task may fail and be restarted by Connect itself
BACKOFF_S: Final = (1.0, 30.0)  # first and longest pause; it doubles
# from the start of Java to the connector's RUNNING: usually 8 s, minutes on an overloaded machine
START_S: Final = 300.0
HEALTHY_S: Final = 60.0  # a run of this length resets the backoff


_Found = TypeVar("_Found")


class SupervisedProcess(Protocol):
    """Interface of a child process that a supervisor can poll and stop.

    Attributes:
        pid: Process id.
    """

    pid: int

    def poll(self) -> int | None: ...

    def stop(self) -> int: ...


class FailureDetector(Protocol):
    """Interface of detectors for failures that leave the supervised process running.

    The supervisor calls `start_run` before each start of the process, and then polls `failures`. If
    the state cannot be read at the moment, both methods raise an error, and the supervisor retries
    later.
    """

    def start_run(self) -> None:
        """Prepare the detector for a new run of the process, and discard failures of earlier runs.

        Raises:
            HourmarkError: The state cannot be read at the moment.
            KafkaException: A Kafka cluster cannot be read at the moment.
        """
        ...

    def failures(self) -> list[ConnectorTaskFailure]:
        """Return the unresolved failures of the current run.

        The supervisor restarts the process if the list is not empty.

        Returns:
            One entry for each failed connector or task; empty if there are none.

        Raises:
            HourmarkError: The state cannot be read at the moment.
            KafkaException: A Kafka cluster cannot be read at the moment.
        """
        ...


class TaskFailureDetector:
    """Failure detector that reads the states of connectors and tasks from the target cluster.

    Only failures on this worker are reported, because each worker has its own supervisor. A
    connector that is not running 5 minutes after the start is also reported as a failure, because a
    rejected connector reports no state.

    Args:
        central: Settings of the target cluster.
        edge_alias: Alias of the edge cluster, which identifies the mirror.
        worker: Address of this worker, `host:port`.
        clock: Source of monotonic time.
    """

    def __init__(self, central: KafkaCluster, edge_alias: str, worker: str, clock: Clock) -> None:
        self._clock = clock
        self._follower = TopicFollower(central, status_topic(edge_alias))
        self._states = TaskStates(worker)

    def start_run(self) -> None:
        self._states.mark_outdated()
        self._began_s = self._clock.monotonic_s()
        self._states.update(self._follower.poll()[1])
        self._states.mark_outdated()

    def failures(self) -> list[ConnectorTaskFailure]:
        self._states.update(self._follower.poll()[1])
        if (
            not self._states.is_running(CONNECTOR)
            and self._clock.monotonic_s() - self._began_s > START_S
        ):
            not_running = ConnectorTaskFailure(
                CONNECTOR, f"not running {START_S:g} s after the start; see its log for the cause"
            )
            return [*self._states.local_failures, not_running]
        return self._states.local_failures


@dataclasses.dataclass
class _RetryingDetector:
    # Logs errors of the wrapped detector once, and calls it again after `retry_s` with backoff.

    detector: FailureDetector
    clock: Clock
    pause_s: float = DETECT_INTERVAL_S
    retry_s: float = -math.inf

    def start_run(self) -> None:
        self._call(self.detector.start_run)

    def failures(self) -> list[ConnectorTaskFailure]:
        return (
            self._call(self.detector.failures) if self.clock.monotonic_s() >= self.retry_s else None
        ) or []

    def _call(self, poll: Callable[[], _Found]) -> _Found | None:
        try:
            found = poll()
        except (HourmarkError, KafkaException) as error:
            if self.pause_s == DETECT_INTERVAL_S:
                _LOG.warning("cannot determine whether MirrorMaker 2 works, will retry: %s", error)
            self.retry_s = self.clock.monotonic_s() + self.pause_s
            self.pause_s = min(2 * self.pause_s, BACKOFF_S[1])
            return None
        if self.pause_s > DETECT_INTERVAL_S:
            _LOG.info("MirrorMaker 2 can be checked again")
        self.pause_s = DETECT_INTERVAL_S
        return found


@dataclasses.dataclass(kw_only=True)
class MirrorSupervisor:
    """Runs MirrorMaker 2 and restarts it after failures until `stopping` is set.

    Attributes:
        start_process: Function that starts a new process and returns it.
        detectors: Failure detectors, polled every 2 seconds.
        clock: Source of monotonic time and sleep.
        stopping: Event that stops the process and ends `run`.
        restart: Whether to restart the process after a failure.
    """

    start_process: Callable[[], SupervisedProcess]
    detectors: Sequence[FailureDetector]
    clock: Clock
    stopping: threading.Event
    restart: bool

    def run(self) -> int:
        """Run MirrorMaker 2 until `stopping` is set or, without `restart`, until the first failure.

        Returns:
            0 after a requested stop. Without `restart`, the exit code of the process, or 1 if a
            detector reported a failure. If a signal ended the process, the exit code is 128 plus
            the signal number.

        Raises:
            HourmarkError: The first process cannot be started.
            OSError: The first process cannot be started.
        """
        pause_s = BACKOFF_S[0]
        detectors = [_RetryingDetector(detector, self.clock) for detector in self.detectors]
        process: SupervisedProcess | None = None
        while not self.stopping.is_set():
            for detector in detectors:
                detector.start_run()
            started_s = self.clock.monotonic_s()
            try:
                process = self.start_process()
            except (HourmarkError, OSError) as error:
                if process is None:
                    raise
                _LOG.error("MirrorMaker 2 could not be started: %s", error)
            else:
                code, reason = self._supervise(process, detectors)
                if reason is None:
                    return 0
                _LOG.error("%s", reason)
                if not self.restart:
                    return code
            if self.clock.monotonic_s() - started_s >= HEALTHY_S:
                pause_s = BACKOFF_S[0]
            _LOG.warning("restarting MirrorMaker 2 in %g s", pause_s)
            self._wait(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_S[1])
        return 0

    def _supervise(
        self, process: SupervisedProcess, detectors: Sequence[_RetryingDetector]
    ) -> tuple[int, str | None]:
        _LOG.info("MirrorMaker 2 started, pid %s", process.pid)
        try:
            return self._until_failure(process, detectors)
        finally:
            process.stop()

    def _until_failure(
        self, process: SupervisedProcess, detectors: Sequence[FailureDetector]
    ) -> tuple[int, str | None]:
        polled_s = self.clock.monotonic_s()
        failed_since_s: float | None = None
        while not self.stopping.is_set():
            code = process.poll()
            if code is not None:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                return (
                    128 - code if code < 0 else code
                ), f"MirrorMaker 2 (pid {process.pid}) exited unexpectedly: {how}"
            now_s = self.clock.monotonic_s()
            if now_s - polled_s >= DETECT_INTERVAL_S:
                polled_s = now_s
                failed = [failure for detector in detectors for failure in detector.failures()]
                failed_since_s = (failed_since_s or now_s) if failed else None
                if failed_since_s is not None and now_s - failed_since_s >= GRACE_S:
                    return 1, "MirrorMaker 2 has stalled: " + "; ".join(
                        f"{f.name} failed: {f.cause}" for f in failed
                    )
            self._wait(POLL_S)
        return 0, None

    def _wait(self, seconds: float) -> None:
        until_s = self.clock.monotonic_s() + seconds
        while not self.stopping.is_set() and (left_s := until_s - self.clock.monotonic_s()) > 0:
            self.clock.sleep(min(left_s, POLL_S))
