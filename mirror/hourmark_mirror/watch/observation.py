"""Data model of the watch: observations of both clusters, and the state kept between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

from hourmark.kafka.clients import Partition
from hourmark.process.alarms import Alarm
from hourmark_mirror.run.task_status import ConnectorTaskFailure


class OversizedRecord(NamedTuple):
    """Edge record that exceeds the maximum message size of the target cluster.

    Attributes:
        offset: Offset of the record at the edge.
        bytes: Size of key and value in bytes.
        limit: Maximum size in bytes that the target accepts.
    """

    offset: int
    bytes: int
    limit: int


class UnsampledRange(NamedTuple):
    """Range of edge offsets that were copied but have not been sampled for verification yet.

    Attributes:
        first: First offset (inclusive).
        end: End offset (exclusive).
    """

    first: int
    end: int


class SampleResult(NamedTuple):
    """Result of comparing a sample of records in one topic-partition on both clusters.

    Attributes:
        covered: Range of edge offsets from which the sample was chosen.
        compared: Number of records compared.
        through_ms: Timestamp of the last sampled record, in Unix milliseconds.
        differs: First edge offset whose record is missing or out of order on the target; None if
            all sampled records match.
    """

    covered: UnsampledRange
    compared: int
    through_ms: int
    differs: int | None


class TruncatedRecord(NamedTuple):
    """Edge record that is missing on the target although retention cannot have deleted it.

    The record precedes the log start of the target, so the target's log was truncated.

    Attributes:
        offset: Offset of the record at the edge.
        timestamp_ms: Timestamp of the record, in Unix milliseconds.
        target_start: Log start offset on the target.
    """

    offset: int
    timestamp_ms: int
    target_start: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MirrorObservation:
    """State of the edge and target clusters of a mirror at one point in time.

    The clusters are read in an order that keeps the values consistent: positions first, then the
    edge's log starts and ends, then the target. Unless described as "by topic", mappings have edge
    topic-partitions as keys.

    Attributes:
        now_ms: Time of the observation, in Unix milliseconds.
        ids: Topic ids at the edge, by topic.
        remote_ids: Topic ids on the target, by edge topic. Topics that do not exist on the target
            are absent.
        starts: Log start offsets at the edge.
        ends: Log end offsets at the edge.
        positions: Edge offset of the next record to copy. Topic-partitions without a position are
            absent.
        remote_starts: Log start offsets on the target.
        remote_ends: Log end offsets on the target.
        retention_ms: `retention.ms` at the edge, by topic; negative means unlimited.
        uncopied_ms: Timestamp of the first uncopied record, in Unix milliseconds. Contains only
            topic-partitions that were also behind at the previous observation.
        cut_off: First record that was truncated on the target. Topic-partitions without such a
            record are absent.
        unread: Topic-partitions whose log start on the target moved, but that have not been checked
            for truncated records yet.
        blocking: Record that is too large for the target. Contains only topic-partitions that are
            stalled and have such a record.
        failures: Failed connectors and tasks.
        newest_ms: Timestamp of the newest record in Unix milliseconds, by topic; None if the topic
            is empty. Contains only topics that should receive records regularly.
        workers: Number of running MirrorMaker 2 workers; None if it was not read.
        samples: Results of comparing sampled records.
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
    """Recorded state of one edge topic-partition after an observation of the mirror.

    Attributes:
        covered: Edge offset (exclusive) up to which all records were copied, or were deleted before
            the first observation.
        position: Edge offset of the next record to copy; None if the mirror has no position.
        end: Log end offset at the edge.
        since_ms: Time of the last observation in which the mirror had advanced or was not behind,
            in Unix milliseconds.
        remote_start: Log start offset on the target at the last check for truncated records.
        remote_end: Log end offset on the target.
        sampled: Edge offset (exclusive) up to which samples were taken.
        sampled_ms: Timestamp of the last sampled record, in Unix milliseconds.
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
    """Recorded state of one edge topic after an observation of the mirror.

    Attributes:
        topic_id: Kafka topic id at the edge.
        remote_id: Kafka topic id on the target; None if the topic never existed there.
        partitions: Maps each partition number to its state.
    """

    topic_id: str
    remote_id: str | None
    partitions: Mapping[int, PartitionState]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """State that the mirror watch stores between two observations.

    Attributes:
        looked_ms: Time of the last observation, in Unix milliseconds; 0 before the first.
        topics: Maps each edge topic name to the state of the topic.
        standing: Alarms about lost records that no operator has accepted.
        few_since_ms: Time since which fewer workers than expected have been running, in Unix
            milliseconds; None if enough are running.
        format: Version of the file format.
    """

    looked_ms: int = 0
    topics: Mapping[str, TopicState] = dataclasses.field(default_factory=dict)
    standing: tuple[Alarm, ...] = ()
    few_since_ms: int | None = None
    format: Literal[1] = 1

    def partition_state(self, partition: Partition) -> PartitionState | None:
        """Return the recorded state of an edge topic-partition.

        Args:
            partition: Topic-partition at the edge.

        Returns:
            The state; None if the topic-partition has not been observed yet.
        """
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)
