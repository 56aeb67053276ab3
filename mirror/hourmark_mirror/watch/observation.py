"""Data model of the watch: observations of both clusters, and the state kept between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

from hourmark.kafka.clients import Partition
from hourmark.process.alarms import Alarm
from hourmark_mirror.run.task_status import ConnectorTaskFailure


class OversizedRecord(NamedTuple):
    """An edge record that is too large for the target cluster.

    Attributes:
        offset: Offset at the edge.
        bytes: Size of key and value.
        limit: Largest size that the target accepts.
    """

    offset: int
    bytes: int
    limit: int


class UnsampledRange(NamedTuple):
    """A range of edge offsets that were copied but not sampled yet.

    Attributes:
        first: First offset.
        end: Offset after the last.
    """

    first: int
    end: int


class SampleResult(NamedTuple):
    """Result of comparing sampled records in one range of a partition on both clusters.

    Attributes:
        covered: Range that the sample covers.
        compared: Number of records compared.
        through_ms: Timestamp of the last sampled record, Unix milliseconds.
        differs: First edge offset whose record is not in its place on the target; None if all
            match.
    """

    covered: UnsampledRange
    compared: int
    through_ms: int
    differs: int | None


class TruncatedRecord(NamedTuple):
    """An edge record that is missing at the start of the target's log but cannot have expired.

    Attributes:
        offset: Offset at the edge.
        timestamp_ms: Timestamp of the record, Unix milliseconds.
        target_start: Log start offset on the target.
    """

    offset: int
    timestamp_ms: int
    target_start: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MirrorObservation:
    """State of both clusters at one time, keyed by edge topic or edge topic-partition.

    Offsets are the next to read. The order of reads makes the values consistent: positions, then
    the edge's log starts and ends, then the target.

    Attributes:
        now_ms: Time of the observation, Unix milliseconds.
        ids: Topic ids at the edge.
        remote_ids: Topic ids on the target. Topics that the target does not have are absent.
        starts: Log start offsets at the edge.
        ends: Log end offsets at the edge.
        positions: Next offset that the mirror copies.
        remote_starts: Log start offsets on the target.
        remote_ends: Log end offsets on the target.
        retention_ms: `retention.ms` at the edge; negative means unlimited.
        uncopied_ms: Timestamp of the first uncopied record, for partitions that were also behind at
            the previous observation.
        cut_off: Record that is missing at the start of the target's log, for partitions with such a
            record.
        unread: Partitions whose log start on the target moved but was not checked yet.
        blocking: Record that is too large for the target, for stalled partitions with such a
            record.
        failures: Failed connectors and tasks.
        newest_ms: Timestamp of the newest record, for topics with expected traffic; None if the
            topic is empty.
        workers: Number of workers in the group; None if the number was not read.
        samples: Results of sampling.
    """

    now_ms: int
    ids: Mapping[str, str]
    remote_ids: Mapping[str, str]
    starts: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    positions: Mapping[Partition, int]
    remote_starts: Mapping[Partition, int]
    remote_ends: Mapping[Partition, int]
    retention_ms: Mapping[str, int]
    uncopied_ms: Mapping[Partition, int] = dataclasses.field(default_factory=dict)
    cut_off: Mapping[Partition, TruncatedRecord] = dataclasses.field(default_factory=dict)
    unread: frozenset[Partition] = frozenset()
    blocking: Mapping[Partition, OversizedRecord] = dataclasses.field(default_factory=dict)
    failures: tuple[ConnectorTaskFailure, ...] = ()
    newest_ms: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    workers: int | None = None
    samples: Mapping[Partition, SampleResult] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """What a mirror watch knows about one edge topic-partition after an observation.

    Attributes:
        covered: Offset below which all records were copied, or deleted before the first
            observation.
        position: Next offset that the mirror copies; None if the mirror has no position.
        end: Log end offset at the edge.
        since_ms: Unix milliseconds since when the mirror is behind and its position has not moved.
        remote_start: Last checked log start offset on the target.
        remote_end: Log end offset on the target.
        sampled: Offset up to which samples were taken.
        sampled_ms: Timestamp of the last sampled record, Unix milliseconds.
        passed: Number of offsets in all sampled ranges since the first observation.
        compared: Number of records compared since the first observation.
    """

    covered: int
    position: int | None
    end: int
    since_ms: int
    remote_start: int | None = None
    remote_end: int | None = None
    sampled: int = 0
    sampled_ms: int = 0
    passed: int = 0
    compared: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class TopicState:
    """What a mirror watch knows about one edge topic after an observation.

    Attributes:
        topic_id: Topic id at the edge.
        remote_id: Topic id on the target; None if it never had the topic.
        partitions: State by partition number.
    """

    topic_id: str
    remote_id: str | None
    partitions: Mapping[int, PartitionState]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """State that a mirror watch keeps from one observation to the next.

    Attributes:
        looked_ms: Time of the last observation, Unix milliseconds; 0 before the first.
        topics: State of each topic by edge topic name.
        standing: Alarms about losses that no operator has accepted.
        few_since_ms: Unix milliseconds since when workers are missing; None if none are missing.
        format: Version of the file format.
    """

    looked_ms: int = 0
    topics: Mapping[str, TopicState] = dataclasses.field(default_factory=dict)
    standing: tuple[Alarm, ...] = ()
    few_since_ms: int | None = None
    format: Literal[1] = 1

    def partition_state(self, partition: Partition) -> PartitionState | None:
        """Return the state of an edge topic-partition; None before its first observation."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)
