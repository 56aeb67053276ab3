"""One trial from start to end: create topics, run a load, inject faults, and compute the result.

When a trial ends, even with an error or Ctrl-C, every operation on a server is undone and the
trial's topics are deleted.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Literal

from hourmark.errors import HourmarkError, Unavailable
from hourmark.kafka.topic_names import central_topic
from hourmark_evaluate import accounting
from hourmark_evaluate.clients.broker_metrics import compare_with_metrics
from hourmark_evaluate.clients.cluster import EvaluatedCluster
from hourmark_evaluate.clients.load_producer import LoadProducer, Rate
from hourmark_evaluate.clients.mirror_observer import MirroredLoadObserver
from hourmark_evaluate.clients.readers import GroupConsumer, read_all
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.record_format import RecordPlacement
from hourmark_evaluate.results import (
    BacklogResult,
    CpuUsage,
    Disturbance,
    LeaderTakeover,
    MetricComparison,
    RecordCounts,
    TrialResult,
)

# Time limit for a server to become unavailable. A group notices a killed member after ten seconds.
EFFECT_SECONDS: Final = 30.0
RECOVERY_SECONDS: Final = 180.0  # time limit for servers to recover; 15 s are usual
RETRY_S: Final = 15.0  # a broker that found no controller in time exits, so it is started again
# A mirror or consumer without progress for this long will not reach the end.
NO_PROGRESS_SECONDS: Final = 120.0

Victim = Literal["producer", "mirror"]


@dataclass(frozen=True, slots=True)
class _CompletedFault:
    description: str
    victim: Victim
    began_s: float
    healed_s: float
    gave_up_s: float


class RecoveryFailed(Unavailable):
    """Raised when servers do not recover from a fault, or when sent records cannot be read back.

    The trial cannot continue.
    """


class TrialRun:
    """A running trial: a load of test records on Kafka, during which faults are injected.

    Use `start_trial_run` to create an object. That function starts the load, and cleans up at the
    end.

    Attributes:
        environment: The clusters, the operations on servers, and the user's options.
        load: The running producer.
        mirror: The observer of the mirror; None if the trial does not use a mirror.
        notes: Remarks for the report.
        takeovers: Attempts to remove the mirror's leading worker, and their outcomes.
        group: The consumer group of the trial; None until `start_group_consumer` is called.
        backlog: The result of a backlog measurement; None if there was none.
    """

    def __init__(
        self,
        environment: TrialEnvironment,
        name: str,
        title: str,
        load: LoadProducer,
        mirror: MirroredLoadObserver | None,
    ) -> None:
        self.environment, self.load, self.mirror = environment, load, mirror
        self.notes: list[str] = []
        self.takeovers: list[LeaderTakeover] = []
        self.group: GroupConsumer | None = None
        self.backlog: BacklogResult | None = None
        self._name, self._title = name, title
        self._completed: list[_CompletedFault] = []
        self._not_tried: list[str] = []  # faults that were not tried, with reasons
        self._cpu_at_start: tuple[float, float, dict[int, float] | None] | None = None

    def report_progress(self, message: str) -> None:
        """Report a line of progress to the user, with the name of the trial as its prefix."""
        self.environment.report_progress(f"{self._name}: {message}")

    def wait_under_load(self, seconds: float) -> None:
        """Wait for a fixed time while the load continues.

        If the trial uses a mirror (MirrorMaker 2), `poll_mirror` is called repeatedly.

        Args:
            seconds: Time to wait, in seconds.
        """
        self.environment.wait_until(lambda: False, seconds, self.poll_mirror)

    def poll_mirror(self) -> None:
        """Check whether the mirror has copied all records below its committed offsets.

        The mirror is MirrorMaker 2, which copies the topics of the trial to the central cluster.
        The outcome becomes part of the result of `finish`. Call this method repeatedly while
        waiting. It does nothing if the trial does not use a mirror.
        """
        if self.mirror is not None:
            self.mirror.poll()

    def inject_fault(
        self,
        description: str,
        start: Callable[[], None],
        undo: Callable[[], None],
        duration_s: float,
        has_recovered: Callable[[], bool] = lambda: True,
        victim: Victim = "producer",
        is_effective: Callable[[], bool] = lambda: True,
        before_undo: Callable[[], None] = lambda: None,
    ) -> bool:
        """Inject a fault, undo it, and wait until the producer or the mirror recovers.

        The mirror is MirrorMaker 2. A completed fault is added to the result of the trial. If
        `start`, `is_effective` or `before_undo` raises `HourmarkError`, or if `is_effective` does
        not return True within 30 s, the fault is undone and recorded as not tried.

        Args:
            description: Description of the fault for the report.
            start: Function that starts the fault, for example by stopping a broker.
            undo: Function that undoes the fault. It must be idempotent, because it is called again
                after an error, and every 15 s until the servers have recovered.
            duration_s: Duration of the fault in seconds, after `is_effective` has returned True.
            has_recovered: Function that returns whether the servers have recovered.
            victim: Component that must recover. "mirror" also requires that all records sent are
                copied.
            is_effective: Function that returns whether the fault is in effect.
            before_undo: Function called immediately before `undo` if the fault is still in effect.

        Returns:
            True if the fault took place, even if the component did not recover in time; False if
            the fault was recorded as not tried.

        Raises:
            RecoveryFailed: The servers did not recover within 180 s; the trial cannot continue.
        """
        self.report_progress(description)
        began_s, reason = self.load.now_s, ""
        try:
            start()
            if self.environment.wait_until(is_effective, EFFECT_SECONDS, self.poll_mirror):
                self.wait_under_load(duration_s)
                if is_effective():
                    before_undo()
                else:
                    self.notes.append(
                        f"{description}: the server recovered before it was started again"
                    )
            else:
                reason = f"the fault was not in effect on all servers after {EFFECT_SECONDS:.0f} s"
        except HourmarkError as error:
            reason = str(error)
        except BaseException:  # including Ctrl-C: no server stays down
            try_to_undo(undo)
            raise
        self._undo_until_recovered(description, undo, has_recovered)
        if reason:
            self.record_not_tried(description, reason)
            return False
        healed_s, number = self.load.now_s, self.load.sent

        def victim_recovered() -> bool:
            if victim == "mirror" and not self._is_copied(number):
                return False
            return self.load.has_recovered_since(healed_s) or bool(self.load.fatal_error)

        limit_s = self.environment.options.recovery_s
        self.environment.wait_until(victim_recovered, limit_s, self.poll_mirror)
        self._completed.append(
            _CompletedFault(description, victim, began_s, healed_s, self.load.now_s)
        )
        return True

    def record_not_tried(self, description: str, reason: str) -> None:
        """Record that a planned fault could not be injected.

        If no fault of the trial could be injected, the whole trial counts as not tried.

        Args:
            description: Description of the fault, for the report.
            reason: Why it could not be injected, for the report.
        """
        self._not_tried.append(f"{description} was not tried: {reason}")

    def start_cpu_measurement(self) -> None:
        """Start measuring how much CPU time the client and the brokers use per event.

        The measurement ends when `finish` is called, and is part of its result.
        """
        self._cpu_at_start = (self.load.now_s, _process_cpu_s(), self._read_broker_cpu())

    def finish(self) -> TrialResult:
        """Stop the load, read all records back, and return the result of the trial.

        If the trial is inconclusive, for example because no fault could be injected, the result
        contains only the reason in `not_tried`.

        Raises:
            RecoveryFailed: The records cannot be read back from the edge cluster.
            Unavailable: The consumer group of the trial stopped with an error.
        """
        self.load.stop()
        cpu_usage = self._cpu_usage()
        sent_s, answered_s, acknowledged = self.load.outcome_arrays()
        if reason := self._why_inconclusive(any_acknowledged=bool(acknowledged.any())):
            return TrialResult(name=self._name, title=self._title, not_tried=reason)
        records_read = self._read_edge_records()
        counts = [accounting.count_records("edge", self.load.placement, acknowledged, records_read)]
        copied_s = self._count_group_and_central(counts, acknowledged)
        compared, not_compared = self._compare_with_metrics(
            {at: len(numbers) for at, numbers in records_read.numbers.items()}
        )
        if failed := int((~acknowledged & (answered_s == answered_s)).sum()):
            self.notes.append(
                f"{failed:,} records were refused; first error: {self.load.first_error}"
            )
        return TrialResult(
            name=self._name,
            title=self._title,
            seconds=round(self.load.now_s, 1),
            counts=tuple(counts),
            disturbances=tuple(
                self._measure_recovery(fault, sent_s, answered_s, acknowledged, copied_s)
                for fault in self._completed
            ),
            takeovers=tuple(self.takeovers),
            claims=self.mirror.finish() if self.mirror else None,
            backlog=self.backlog,
            fatal=self.load.fatal_error,
            comparisons=compared,
            not_compared=not_compared,
            cost=cpu_usage,
            timeline=accounting.count_per_second(sent_s, answered_s, acknowledged),
            notes=(*self.notes, *self._not_tried),
        )

    def start_group_consumer(self) -> GroupConsumer:
        """Start a consumer group that reads the topics of this trial from the beginning.

        Returns:
            The running consumer, also available as `group`.
        """
        self.group = GroupConsumer(
            self.environment.edge.settings,
            self.environment.record_format,
            self.load.placement.topics,
            self._group_id,
        )
        self.group.start()
        return self.group

    def stop_group_consumer(self) -> None:
        """Stop the trial's consumer group and delete it from the cluster.

        This method does nothing if `start_group_consumer` was not called. If the group cannot be
        deleted, the reason is reported as progress and no error is raised.
        """
        if self.group is None:
            return
        with contextlib.suppress(Unavailable):  # reported where the group's error is checked
            self.group.stop()
        try:
            self.environment.edge.delete_consumer_group(self._group_id)
        except Unavailable as error:
            self.report_progress(
                f"{error}; the group is empty, and brokers delete it automatically after "
                "offsets.retention.minutes"
            )

    @property
    def _group_id(self) -> str:
        return f"{self.environment.options.prefix}{self.environment.run_id}-{self._name}"

    def _undo_until_recovered(
        self, description: str, undo: Callable[[], None], has_recovered: Callable[[], bool]
    ) -> None:
        until_s = self.environment.clock.monotonic_s() + RECOVERY_SECONDS
        failed = try_to_undo(undo)
        while failed or not self.environment.wait_until(has_recovered, RETRY_S, self.poll_mirror):
            if self.environment.clock.monotonic_s() >= until_s:
                cause = f" ({failed})" if failed else ""
                raise RecoveryFailed(
                    f"the servers did not recover within {RECOVERY_SECONDS:.0f} s after "
                    f"“{description}”{cause}; repair them before the next run"
                )
            if failed:
                self.wait_under_load(RETRY_S)
            failed = try_to_undo(undo)

    def _why_inconclusive(self, *, any_acknowledged: bool) -> str:
        if self._completed:
            return ""
        if self._not_tried:
            return "; ".join(self._not_tried)
        return (
            f"the edge cluster accepted no record: {self.load.first_error}"
            if self.load.first_error and not any_acknowledged
            else ""
        )

    def _read_edge_records(self) -> accounting.ConsumedRecords:
        topics, partitions = self.load.placement.topics, self.environment.options.partitions
        try:
            return read_all(
                self.environment.edge.cluster, self.environment.record_format, topics, partitions
            )
        except Unavailable as error:
            raise RecoveryFailed(f"the sent records could not be read back: {error}") from error

    def _is_copied(self, number: int) -> bool:
        return self.mirror is not None and self.mirror.has_copied_below(number + 1)

    def _count_group_and_central(
        self, counts: list[RecordCounts], acknowledged: accounting.Flags
    ) -> accounting.Floats | None:
        if (group := self.group) is not None:
            self.environment.wait_while_progressing(
                lambda: group.distinct_count >= counts[0].distinct,
                lambda: group.distinct_count,
                NO_PROGRESS_SECONDS,
            )
            group.stop()
            counts.append(
                accounting.count_records(
                    "consumer", self.load.placement, acknowledged, group.records_read
                )
            )
        if (mirror := self.mirror) is None:
            return None
        expected = counts[0].distinct
        self.environment.wait_while_progressing(
            lambda: mirror.copied_count >= expected,
            lambda: mirror.copied_count,
            NO_PROGRESS_SECONDS,
            mirror.poll,
        )
        self.environment.wait_until(lambda: False, 2.0, mirror.poll)  # duplicates arrive last
        counts.append(
            accounting.count_records(
                "central", mirror.placement, acknowledged, mirror.reader.records_read
            )
        )
        return mirror.first_read_times.as_array(len(acknowledged))

    def _measure_recovery(
        self,
        fault: _CompletedFault,
        sent_s: accounting.Floats,
        answered_s: accounting.Floats,
        acknowledged: accounting.Flags,
        copied_s: accounting.Floats | None,
    ) -> Disturbance:
        ends_s = answered_s
        if fault.victim == "mirror":
            assert copied_s is not None
            sent_s, ends_s, acknowledged = (
                sent_s[acknowledged],
                copied_s[acknowledged],
                acknowledged[acknowledged],
            )
        recovery_s = accounting.recovery_seconds(
            sent_s, ends_s, acknowledged, fault.healed_s, fault.gave_up_s
        )
        longest_wait_s = accounting.longest_wait_seconds(
            sent_s, ends_s, fault.began_s, fault.healed_s
        )
        return Disturbance(
            what=fault.description,
            victim=fault.victim,
            began_s=round(fault.began_s, 1),
            healed_s=round(fault.healed_s, 1),
            longest_wait_s=round(longest_wait_s, 2),
            recovered_s=None if recovery_s is None else round(recovery_s, 2),
        )

    def _compare_with_metrics(
        self, counts: dict[tuple[str, int], int]
    ) -> tuple[tuple[MetricComparison, ...], str]:
        jmx, edge = self.environment.jmx, self.environment.edge
        if jmx is None:
            return (
                (),
                "the brokers' metrics were not read: needs --jmx HOST:PORT for each edge broker",
            )
        if len(jmx.addresses) != len(edge.ids):
            return (
                (),
                f"--jmx names {len(jmx.addresses)} of {len(edge.ids)} edge brokers; a sum needs "
                "all of them",
            )
        self.environment.wait_until(
            lambda: edge.are_all_in_sync(self.load.placement.topics), RECOVERY_SECONDS
        )
        try:
            metrics = jmx.read_metrics(self.load.placement.topics)
        except HourmarkError as error:  # JMX does not answer, or its tool is not available
            return (), str(error)
        by_partition = {
            (topic, partition): counts.get((topic, partition), 0)
            for topic in self.load.placement.topics
            for partition in range(self.load.placement.partitions)
        }
        compared = compare_with_metrics(
            by_partition, metrics, edge.replication, undisturbed=not self._completed
        )
        return compared, ""

    def _cpu_usage(self) -> CpuUsage | None:
        if self._cpu_at_start is None:
            return None
        began_s, cpu_s, before = self._cpu_at_start
        _, answered_s, acknowledged = self.load.outcome_arrays()
        measured = acknowledged & (answered_s >= began_s)
        after = self._read_broker_cpu()
        same = before is not None and after is not None and before.keys() == after.keys()
        return CpuUsage(
            events=int(measured.sum()),
            seconds=round(float(answered_s[measured].max(initial=began_s)) - began_s, 2),
            client_cpu_s=round(_process_cpu_s() - cpu_s, 3),
            broker_cpu_s=round(sum((after or {}).values()) - sum((before or {}).values()), 3)
            if same
            else None,
        )

    def _read_broker_cpu(self) -> dict[int, float] | None:
        read = self.environment.read_broker_cpu
        return read() if read else None


@contextlib.contextmanager
def start_trial_run(
    environment: TrialEnvironment,
    name: str,
    title: str,
    rate: Rate,
    *,
    shares: tuple[int, ...] = (1,),
    mirrored: bool = False,
) -> Iterator[TrialRun]:
    """Create a trial's topics, start its load, and yield the running trial.

    On exit, in this order: delete the trial's consumer group, abort the load, close the observer of
    the mirror, and delete the topics.

    Args:
        environment: The clusters and the user's options.
        name: Short name of the trial, part of its topic names.
        title: Title of the trial for the report.
        rate: Rate of the load in events per second, as a function of the seconds since its start.
        shares: Relative share of each topic in the load; one topic is created for each item.
        mirrored: Whether a mirror copies the topics. If so, and if there is a central cluster, the
            copies are created and observed there.

    Raises:
        Unavailable: A cluster does not answer or did not create a topic.
    """
    prefix = environment.options.mirrored_prefix if mirrored else environment.options.prefix
    topics = tuple(f"{prefix}{environment.run_id}-{name}-{n}" for n in range(1, len(shares) + 1))
    partitions = environment.options.partitions
    with ExitStack() as on_exit:
        mirror, central = None, environment.central if mirrored else None
        if central is not None:
            remote = [central_topic(topic, environment.alias) for topic in topics]
            on_exit.callback(_delete, central, remote)
            central.create_topics(remote, partitions)
        on_exit.callback(_delete, environment.edge, topics)
        environment.edge.create_topics(topics, partitions)
        load = LoadProducer(
            environment.edge.settings,
            environment.record_format,
            RecordPlacement(topics, shares, partitions),
            rate,
            environment.clock,
            environment.options.delivery_timeout_s,
        )
        if central is not None:
            mirror = MirroredLoadObserver(
                central, environment.alias, environment.record_format, load
            )
            on_exit.callback(mirror.close)
        on_exit.callback(load.abort)
        trial = TrialRun(environment, name, title, load, mirror)
        on_exit.callback(trial.stop_group_consumer)
        load.start()
        yield trial


def try_to_undo(undo: Callable[[], None]) -> str:
    """Call a function that undoes a fault, and return its error message.

    Args:
        undo: Function that undoes the fault. It must be idempotent, because it is called again if
            Ctrl-C interrupts it; `KeyboardInterrupt` is then raised again.

    Returns:
        The message of the `HourmarkError` that `undo` raised; "" if it succeeded. Errors of other
        types are not caught.
    """
    try:
        undo()
    except HourmarkError as error:
        return str(error)
    except KeyboardInterrupt:
        undo()
        raise
    return ""


def _delete(cluster: EvaluatedCluster, topics: Sequence[str]) -> None:
    # If this fails, for example when a run is interrupted during an outage, the evaluation deletes
    # the topics at its end.
    with contextlib.suppress(Unavailable):
        cluster.delete_topics(topics)


def _process_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
