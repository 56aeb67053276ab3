"""The plan of a micro-batch: offset spans to read, assigned to tasks. Pure functions.

Every partition with a backlog gets a fair share of a batch: the largest equal share with which all
fit. A small type next to a large backlog is therefore staged completely and immediately. The bytes
of a type are limited while reading: each span has its share of the limit and ends early when that
is used up, so no estimate of record sizes is needed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hourmark.kafka.clients import Partition
from hourmark.kafka.partitions_reader import StartOffset
from hourmark_etl.model import OffsetSpan, StagingPosition

TASK_RECORDS_MIN: Final = 5_000  # fewer are not worth a task, and a file, of their own


class ReadSpan(NamedTuple):
    """A range of Kafka offsets to read from one partition, with a size limit.

    Attributes:
        span: Topic-partition with start and end offset.
        bytes_max: Maximum size of the record values in bytes. Reading ends with the record that
            reaches the limit.
        begin: Offset and leader epoch from which to fetch instead of the span's start. They allow
            the broker to detect a truncated log. None to fetch from the start.
    """

    span: OffsetSpan
    bytes_max: int
    begin: StartOffset | None = (
        None  # where to begin instead of the span's start, with the leader epoch to compare
    )

    @property
    def records(self) -> int:
        """Return the number of offsets in the range, which is an upper bound of its records.

        The range may contain fewer records, because transaction markers also use offsets.
        """
        return self.span.end - self.span.start

    @property
    def partition(self) -> Partition:
        """Return the topic-partition on the central cluster."""
        return Partition(self.span.topic, self.span.partition)


class PlannedBatch(NamedTuple):
    """A planned micro-batch: the offset ranges that each Spark task reads.

    Spark's streaming source uses it as its offset.

    Attributes:
        folder: Folder of the batch's files, relative to the storage root.
        tasks: Offset ranges of each task.
    """

    folder: str
    tasks: tuple[tuple[ReadSpan, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the batch as a JSON-compatible dictionary, for Spark's offset log.

        `from_json` is the inverse.
        """
        tasks = [[[r.span.to_list(), r.bytes_max, r.begin] for r in task] for task in self.tasks]
        return {"folder": self.folder, "tasks": tasks}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PlannedBatch:
        """Create a batch from the dictionary that `to_json` returned.

        Args:
            values: The dictionary, as parsed from JSON.

        Raises:
            KeyError: A key is missing.
        """
        return cls(
            values["folder"], tuple(tuple(_read_span(*r) for r in task) for task in values["tasks"])
        )


def _read_span(span: Sequence[Any], bytes_max: int, begin: Sequence[int] | None) -> ReadSpan:
    return ReadSpan(
        OffsetSpan.from_list(span), bytes_max, None if begin is None else StartOffset(*begin)
    )


def find_resume_offset(position: StagingPosition, log_start: int) -> StartOffset | None:
    """Return the offset and leader epoch from which to resume reading a partition.

    The result is the offset after the last staged record, with the leader epoch of this record. It
    allows the broker to detect a truncated log (KIP-320). The staging position (next offset to copy
    to storage) cannot be used for this purpose, because transaction markers before it may have a
    later epoch, and the broker would report a false truncation.

    Args:
        position: Staging position of the partition.
        log_start: Start offset of the partition's log.

    Returns:
        The offset and epoch. None if no epoch is known, or if the log no longer has the offset.
    """
    if (
        position.leader_epoch is None
        or position.epoch_next is None
        or position.epoch_next < log_start
    ):
        return None
    return StartOffset(position.epoch_next, position.leader_epoch)


def make_empty_span(position: StagingPosition) -> OffsetSpan:
    """Create an offset range without records at the next offset to stage.

    Reading it returns nothing, but lets the broker compare leader epochs and so detect a truncated
    log.

    Args:
        position: Staging position (next offset to copy to storage) of the partition.
    """
    return OffsetSpan(
        topic=position.topic,
        topic_id=position.topic_id,
        partition=position.partition,
        start=position.next_offset,
        end=position.next_offset,
    )


def plan_spans(
    positions: Iterable[StagingPosition],
    ends: Mapping[Partition, int],
    *,
    records_max: int,
    type_bytes_max: int,
    starts: Mapping[Partition, int] | None = None,
) -> list[ReadSpan]:
    """Choose the offset ranges of the next batch, one for each partition with new records.

    Args:
        positions: Staging positions (next offset to copy to storage) of the partitions.
        ends: Committed end offset (exclusive) of each partition.
        records_max: Maximum number of offsets in the batch. Each partition gets at least one
            offset, even if the maximum is then exceeded.
        type_bytes_max: Maximum size of the record values per topic, in bytes.
        starts: Log start offset of each partition, which is required for brokers to compare leader
            epochs; None for no comparison.

    Returns:
        The offset ranges; empty if there are no new records.
    """
    behind = [
        (backlog, p) for p in positions if (backlog := ends[p.topic_partition] - p.next_offset) > 0
    ]
    taken = _fair_shares(behind, records_max)
    of_topic = Counter[str]()
    for share, p in taken:
        of_topic[p.topic] += share
    return [
        ReadSpan(
            OffsetSpan(
                topic=p.topic,
                topic_id=p.topic_id,
                partition=p.partition,
                start=p.next_offset,
                end=p.next_offset + share,
            ),
            max(1, type_bytes_max * share // of_topic[p.topic]),
            None if starts is None else find_resume_offset(p, starts[p.topic_partition]),
        )
        for share, p in taken
    ]


def assign_to_tasks(
    spans: Collection[ReadSpan], tasks_max: int
) -> tuple[tuple[ReadSpan, ...], ...]:
    """Assign offset ranges to tasks so that all tasks read about the same number of records.

    All partitions of a topic are assigned to the same task, unless they exceed a task's share.

    Args:
        spans: Offset ranges to assign.
        tasks_max: Maximum number of tasks. Fewer tasks are used if there are few records.

    Returns:
        Offset ranges of each task. No task is empty.
    """
    total = _records(spans)
    tasks = min(tasks_max, max(1, -(-total // TASK_RECORDS_MIN)))
    by_topic = defaultdict[str, list[ReadSpan]](list)
    for s in spans:
        by_topic[s.span.topic].append(s)
    lots: list[list[ReadSpan]] = []
    for found in by_topic.values():
        lots += [found] if _records(found) * tasks <= total else [[s] for s in found]
    lots.sort(key=_records, reverse=True)
    dealt: list[list[ReadSpan]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    for lot in lots:
        least = sizes.index(min(sizes))
        dealt[least] += lot
        sizes[least] += _records(lot)
    return tuple(tuple(task) for task in dealt if task)


def _records(lot: Iterable[ReadSpan]) -> int:
    return sum(s.records for s in lot)


def _fair_shares(
    behind: list[tuple[int, StagingPosition]], records_max: int
) -> list[tuple[int, StagingPosition]]:
    left, taken = records_max, []
    for done, (backlog, p) in enumerate(
        sorted(behind, key=lambda b: (b[0], b[1].topic, b[1].partition))
    ):
        share = min(backlog, max(1, left // (len(behind) - done)))
        taken.append((share, p))
        left -= share
    return taken
