"""The results of trials as plain data, from which verdicts, pages and JSON are derived.

Times are seconds since the start of the trial's load. A trial that was not tried has a reason in
`not_tried`, and a trial that was aborted has one in `broken_off`; their other fields are empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCounts:
    """The numbers of records that a trial sent and that a consumer read at one place.

    Attributes:
        place: Where the records were read: "edge", "central" (the mirror's copies) or "consumer" (a
            consumer group on the edge cluster).
        sent: Records passed to the producer.
        acknowledged: Records that the edge cluster acknowledged.
        read: Messages read, including duplicates and phantoms.
        lost: Records acknowledged but never read.
        doubled: Messages that repeat a record that was already read.
        phantom: Messages that were never sent, were altered, or are in the wrong partition.
        disordered: Records read out of order, that is, first read after a record that was sent
            later to the same partition.
        unacknowledged: Records read although they were not acknowledged. This is not a fault,
            because a client sends such records again.
    """

    place: str
    sent: int
    acknowledged: int
    read: int
    lost: int
    doubled: int
    phantom: int
    disordered: int
    unacknowledged: int

    @property
    def distinct(self) -> int:
        """Number of distinct records of this run that were read."""
        return self.read - self.doubled - self.phantom


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """A fault that was injected into servers, and how long the affected component took to recover.

    Attributes:
        what: Description of the fault.
        victim: The component whose recovery was measured.
        began_s: Start of the fault, in seconds since the start of the load.
        healed_s: Time when the servers had recovered, in seconds since the start of the load.
        longest_wait_s: Longest time in seconds that a record in flight during the fault waited for
            its acknowledgement (victim "producer") or its copy (victim "mirror").
        recovered_s: Seconds from `healed_s` until all records sent before `healed_s` were
            acknowledged, refused or copied; None if the time limit was exceeded.
    """

    what: str
    victim: Literal["producer", "mirror"]
    began_s: float
    healed_s: float
    longest_wait_s: float
    recovered_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderTakeover:
    """The outcome of killing or pausing the leading worker of MirrorMaker 2, the mirror.

    The workers of a mirror form a Kafka Connect group, whose leader distributes the work. If the
    leader is removed, another worker must replace it.

    Attributes:
        how: How the worker was removed: "killed" or "paused".
        workers: Number of the mirror's workers before the removal.
        another_led_s: Seconds until another worker was the leader; None if the time limit was
            exceeded.
    """

    how: str
    workers: int
    another_led_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPositionResult:
    """The comparison of MirrorMaker 2's committed offsets with the records on its target cluster.

    MirrorMaker 2 commits, for each source partition, the offset up to which it has copied. A record
    is early if it was committed as copied before consumers of the target could read it, because its
    transaction was still being completed.

    Attributes:
        samples: Number of comparisons in which at least one offset had been committed.
        false_records: Largest number of records, in one sample, that were committed as copied but
            are missing on the target cluster.
        waiting_max: Largest number of records, in one sample, that were sent but not copied yet.
        early_max: Largest number of early records in one sample; None in results of versions that
            did not count them.
        early_s: Longest time in seconds until all early records of a sample were readable.
    """

    samples: int
    false_records: int
    waiting_max: int
    early_max: int | None = None
    early_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogResult:
    """The measurement of a consumer that starts with a backlog and catches up under load.

    Attributes:
        records: Number of records waiting when the consumer started.
        piled_s: Time in seconds during which these records accumulated.
        caught_up_s: Seconds until the consumer's lag was less than one second of the load; None if
            the time limit was exceeded.
        read_per_s: Records that the consumer read per second.
    """

    records: int
    piled_s: float
    caught_up_s: float | None
    read_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """The comparison of one record count of this evaluation with the brokers' metrics.

    Attributes:
        what: What was counted.
        ours: The count of this evaluation.
        brokers: The count from the brokers' metrics.
    """

    what: str
    ours: int
    brokers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUsage:
    """The CPU time that client and brokers used for a number of acknowledged events.

    Attributes:
        events: Acknowledged events.
        seconds: Duration of the measurement, in seconds.
        client_cpu_s: CPU time of the client process, in seconds.
        broker_cpu_s: CPU time of all edge brokers, in seconds; None unless they run on this machine
            and none was restarted.
    """

    events: int
    seconds: float
    client_cpu_s: float
    broker_cpu_s: float | None = None

    @property
    def events_per_client_core(self) -> float:
        """Acknowledged events per second of CPU time of the client process."""
        return self.events / max(self.client_cpu_s, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePoint:
    """The number of records sent and acknowledged in one second of a trial.

    Attributes:
        at_s: Start of the second, in whole seconds since the start of the load.
        sent: Records sent in this second.
        acknowledged: Records acknowledged in this second.
    """

    at_s: int
    sent: int
    acknowledged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """The result of one trial, in which Kafka was tested under load, usually with injected faults.

    The result of a trial that was not tried or was aborted contains no measurements.

    Attributes:
        name: Short name of the trial.
        title: Title for the report.
        not_tried: Reason why the trial was not tried; "" if it was tried.
        broken_off: Reason why the trial was aborted; "" if it completed.
        seconds: Duration of the load.
        counts: Records sent and read back, one item per place.
        disturbances: The injected faults.
        takeovers: Attempts to remove the mirror's leading worker.
        claims: Comparison of the mirror's committed offsets with the target cluster; None without a
            mirror.
        backlog: How a consumer caught up; None if the trial has no backlog.
        fatal: Message of the error that stopped the producer permanently; "" if none did.
        comparisons: Comparisons of counts with the brokers' metrics.
        not_compared: Reason why the brokers' metrics were not compared; "" if they were.
        cost: CPU time used; None if it was not measured.
        timeline: Records sent and acknowledged, second by second.
        notes: Remarks for the report.
    """

    name: str
    title: str
    not_tried: str = ""
    broken_off: str = ""
    seconds: float = 0.0
    counts: tuple[RecordCounts, ...] = ()
    disturbances: tuple[Disturbance, ...] = ()
    takeovers: tuple[LeaderTakeover, ...] = ()
    claims: MirrorPositionResult | None = None
    backlog: BacklogResult | None = None
    fatal: str = ""
    comparisons: tuple[MetricComparison, ...] = ()
    not_compared: str = ""
    cost: CpuUsage | None = None
    timeline: tuple[TimelinePoint, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tried(self) -> bool:
        """True if the trial took place, even if it was aborted later."""
        return not self.not_tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of one run of `hourmark evaluate`: several trials, which test Kafka under load.

    Attributes:
        version: Version of the software.
        began: Start of the run, as ISO 8601 in UTC.
        seconds: Duration of the run.
        where: "the local stack" or "clusters of the user".
        command: The command line that repeats the run.
        cores: CPU cores of the client's machine.
        load_average: One-minute load average of the client's machine, before the first trial and
            after the last one.
        edge_brokers: Number of brokers of the edge cluster.
        central_brokers: Number of brokers of the central cluster; 0 if there is none.
        replication: Replication factor of the topics.
        peak_rate: Peak rate of the load, in events per second.
        event_bytes: Size of an event in bytes.
        trials: The results, in the order of execution.
    """

    version: str
    began: str
    seconds: float
    where: str
    command: str
    cores: int
    load_average: tuple[float, float]
    edge_brokers: int
    central_brokers: int
    replication: int
    peak_rate: int
    event_bytes: int
    trials: tuple[TrialResult, ...]


_JSON = TypeAdapter(Evaluation)


def as_json(evaluation: Evaluation) -> bytes:
    """Serialize an evaluation as indented JSON in UTF-8. `from_json` is the inverse."""
    return _JSON.dump_json(evaluation, indent=1) + b"\n"


def from_json(text: bytes) -> Evaluation:
    """Parse an evaluation that `as_json` serialized.

    Raises:
        ValueError: The text is not a serialized evaluation.
    """
    return _JSON.validate_json(text)
