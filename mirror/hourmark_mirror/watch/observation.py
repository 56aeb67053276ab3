"""What one look at both clusters saw, and what is remembered of the looks before: all that alarms
are made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

from hourmark.kafka.clients import Partition
from hourmark.process.alarms import Alarm
from hourmark_mirror.run.task_status import TaskFailure


class OversizedRecord(NamedTuple):
    """A record at the edge that the target does not take: `bytes` of key and value, over
    `limit`.
    """

    offset: int
    bytes: int
    limit: int


class UnsampledRange(NamedTuple):
    """Offsets of the edge that were copied and not sampled yet: first, and the next after them."""

    first: int
    end: int


class SampleResult(NamedTuple):
    """Of a stretch: how many records were compared, when its last was written, the first that is
    not on the target as here.
    """

    stretch: UnsampledRange
    compared: int
    through_ms: int
    differs: int | None


class TruncatedRecord(NamedTuple):
    """The edge's first record that the target's retention cannot have deleted, and the target does
    not have.
    """

    offset: int
    timestamp_ms: int
    target_start: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look. Partitions and topics are the edge's; offsets are the next to read; times are Unix
    milliseconds.

    The order in which these were read is what makes them true: positions, then the edge's log
    starts and ends, then the target. `ids`, `remote_ids`: topic ids; `remote_ids` lacks topics that
    the target does not have. `retention_ms`: below 0, for ever. `uncopied_ms`: when the first
    record that is not copied was written, of partitions that were behind at the look before, too.
    `cut_off`: of partitions whose log start moved on the target; `unread`: those of them that were
    left to the next look. `blocking`: of partitions that stand still. `newest_ms`: when the newest
    record of a topic was written, None where it has none; of topics with traffic to be expected.
    `workers`: how many share this mirror now; None where nobody counts them.
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
    failures: tuple[TaskFailure, ...] = ()
    newest_ms: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    workers: int | None = None
    samples: Mapping[Partition, SampleResult] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Of one partition. `covered`: below it everything was copied, or was gone already when it was
    first looked at.

    `since_ms`: since when the position is seen where it is, while the partition is behind; looks
    that lie apart begin anew. `sampled`: up to which offset stretches were sampled, the last record
    of which was written at `sampled_ms`; of `passed` offsets since the first look, `compared`
    records were compared.
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
    """Of one topic of the edge; `remote_id`: None where the target had none."""

    topic_id: str
    remote_id: str | None
    partitions: Mapping[int, PartitionState]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """What is remembered from one look to the next. `standing`: losses, which stand until an
    operator accepts them.

    `few_since_ms`: since when there are fewer workers than there should be.
    """

    looked_ms: int = 0
    topics: Mapping[str, TopicState] = dataclasses.field(default_factory=dict)
    standing: tuple[Alarm, ...] = ()
    few_since_ms: int | None = None
    format: Literal[1] = 1

    def partition_state(self, partition: Partition) -> PartitionState | None:
        """What is known of a partition; None at its first look."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)
