"""The environment of a trial: clusters, available operations on servers, and user options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from hourmark.clock import Clock
from hourmark_evaluate.clients.broker_metrics import JmxClient
from hourmark_evaluate.clients.cluster import EvaluatedCluster
from hourmark_evaluate.execution.server_operations import ServerOperations
from hourmark_evaluate.record_format import RecordFormat

POLL_S: Final = 0.25


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """The user's options for `hourmark evaluate`, and the time limits derived from them.

    Attributes:
        seconds: Duration of a trial's load, in seconds. An outage lasts a tenth of it, but at
            least 2 s.
        rate: Peak rate, in events per second.
        event_bytes: Size of an event in bytes.
        partitions: Number of partitions of each topic.
        burst: Whether to end the load trial with a burst at the client's maximum rate.
        prefix: Prefix of the names of topics and groups.
        mirrored_prefix: Prefix of the names of topics that the mirror copies.
    """

    seconds: float = 60.0
    rate: int = 10_000
    event_bytes: int = 250
    partitions: int = 3
    burst: bool = True
    prefix: str = "hourmark-evaluate."
    mirrored_prefix: str = "events.evaluate-"

    @property
    def steady_rate(self) -> float:
        """Load of the trials with faults, in events per second: a quarter of the peak."""
        # High enough to show each gap, low enough that a small machine can restart the servers.
        return self.rate / 4

    @property
    def outage_s(self) -> float:
        """Duration of an outage in seconds: a tenth of `seconds`, but at least 2."""
        return max(2.0, self.seconds / 10)

    @property
    def delivery_timeout_s(self) -> float:
        """Delivery timeout of a record in seconds: twice `outage_s`, but at least 180.

        It exceeds the duration of any outage, including the time that servers need to recover.
        """
        return max(180.0, 2 * self.outage_s)

    @property
    def recovery_s(self) -> float:
        """Time limit for recovery after a fault, in seconds: 4 * `seconds`, but at least 120.

        A component that needs longer is reported as not recovered.
        """
        return max(120.0, 4 * self.seconds)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnvironment:
    """The clusters, server operations and options that all trials of one run share.

    Attributes:
        edge: The edge cluster.
        central: The central cluster, to which a mirror copies; None if there is none.
        alias: The mirror's alias of the edge cluster, which prefixes the names of copied topics.
        operations: The available operations on servers.
        options: The user's options.
        record_format: Format of the records that the load producer sends.
        run_id: Identifier of the run. It is part of the names of the run's topics and groups.
        clock: Source of time.
        report_progress: Function that is called with each line of progress.
        jmx: Client for the brokers' metrics; None if they are not available.
        read_broker_cpu: Function that returns the CPU time of each edge broker in seconds, by
            process id; None if not available.
    """

    edge: EvaluatedCluster
    central: EvaluatedCluster | None
    alias: str
    operations: ServerOperations
    options: EvaluationOptions
    record_format: RecordFormat
    run_id: str
    clock: Clock
    report_progress: Callable[[str], None]
    jmx: JmxClient | None = None
    read_broker_cpu: Callable[[], dict[int, float]] | None = None

    def wait_while_progressing(
        self,
        condition: Callable[[], bool],
        read_counter: Callable[[], int],
        interval_s: float,
        between_checks: Callable[[], None] = lambda: None,
    ) -> bool:
        """Wait until a condition is true, and give up when a counter stops growing.

        Args:
            condition: Function that returns True when the wait is over; called about every 0.25 s.
            read_counter: Function that returns a progress counter.
            interval_s: Interval in seconds at which the counter is read. If it has not grown since
                the previous reading, the wait ends.
            between_checks: Function that is called after each check that returns False.

        Returns:
            True if the condition became true; False if the counter stopped growing first.
        """
        before = -1
        while read_counter() > before:
            before = read_counter()
            if self.wait_until(condition, interval_s, between_checks):
                return True
        return False

    def wait_until(
        self,
        condition: Callable[[], bool],
        timeout_s: float,
        between_checks: Callable[[], None] = lambda: None,
    ) -> bool:
        """Wait until a condition is true or the timeout expires.

        Args:
            condition: Function that returns True when the wait is over; called immediately and then
                about every 0.25 s.
            timeout_s: Maximum time to wait, in seconds.
            between_checks: Function that is called after each check that returns False.

        Returns:
            True if the condition became true; False if the timeout expired.
        """
        until_s = self.clock.monotonic_s() + timeout_s
        while not condition():
            if self.clock.monotonic_s() >= until_s:
                return False
            between_checks()
            self.clock.sleep(POLL_S)
        return True
