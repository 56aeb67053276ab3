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
    """The user's options of an evaluation, and the time limits derived from them.

    Attributes:
        seconds: Duration of a trial's load, in seconds; outages last a tenth of it, but at least 2
            s.
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
        """Return the rate during faults, in events per second: a quarter of the peak rate.

        It is high enough to show each gap, and low enough that a small machine can restart the
        servers.
        """
        return self.rate / 4

    @property
    def away_s(self) -> float:
        """Return how many seconds a server stays down in a fault.

        The result is a tenth of the length of the load, but at least 2 s.
        """
        return max(2.0, self.seconds / 10)

    @property
    def delivery_s(self) -> float:
        """Return the delivery timeout of a record, in seconds.

        The result is twice the length of an outage, but at least 180 s. It is longer than any
        outage, including the time that servers need to recover.
        """
        return max(180.0, 2 * self.away_s)

    @property
    def recovery_s(self) -> float:
        """Return the time limit for recovery after a fault, in seconds.

        The result is four times the length of the load, but at least 120 s. A component that needs
        longer is reported as stuck.
        """
        return max(120.0, 4 * self.seconds)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnvironment:
    """The environment of the trials of one run.

    Attributes:
        edge: The edge cluster.
        central: The central cluster; None if there is none.
        alias: The mirror's alias of the edge cluster.
        hands: The available operations on servers.
        wish: The user's options.
        form: Format of the records.
        run: Identifier of the run, part of the names of its topics and groups.
        clock: Source of time.
        say: Function that is called with each line of progress.
        jmx: Access to the brokers' metrics; None if it is not available.
        broker_cpu: Function that returns the CPU seconds of each edge broker by process id; None if
            not available.
    """

    edge: EvaluatedCluster
    central: EvaluatedCluster | None
    alias: str
    hands: ServerOperations
    wish: EvaluationOptions
    form: RecordFormat
    run: str
    clock: Clock
    say: Callable[[str], None]
    jmx: JmxClient | None = None
    broker_cpu: Callable[[], dict[int, float]] | None = None

    def wait_while_it_moves(
        self,
        condition: Callable[[], bool],
        count: Callable[[], int],
        still_s: float,
        each: Callable[[], None] = lambda: None,
    ) -> bool:
        """Wait until a condition is true, for as long as a counter keeps growing.

        Args:
            condition: Function that returns whether to stop waiting; checked about every 0.25 s.
            count: Function that returns the counter that shows progress.
            still_s: Seconds without progress after which the wait ends. The counter is checked once
                per such interval.
            each: Function that is called after each check that fails.

        Returns:
            True if the condition became true; False if the counter stopped growing first.
        """
        before = -1
        while count() > before:
            before = count()
            if self.wait(condition, still_s, each):
                return True
        return False

    def wait(
        self, condition: Callable[[], bool], seconds: float, each: Callable[[], None] = lambda: None
    ) -> bool:
        """Wait until a condition is true, or until the time limit expires.

        Args:
            condition: Function that returns whether to stop waiting; checked immediately and then
                about every 0.25 s.
            seconds: Time limit.
            each: Function that is called after each check that fails, before the next one.

        Returns:
            True if the condition became true; False if the time limit expired.
        """
        until_s = self.clock.monotonic_s() + seconds
        while not condition():
            if self.clock.monotonic_s() >= until_s:
                return False
            each()
            self.clock.sleep(POLL_S)
        return True
