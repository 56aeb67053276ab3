"""What a micro-batch reads: positions, committed ends and limits → spans of offsets, dealt out to
tasks. Pure.

Every partition with a backlog gets its fair share of a batch (the greatest share such that all
together fit), so a small type beside a giant backlog is staged whole, at once. A type's bytes are
bounded while reading: each span carries its part of the cap, and ends early where that is used up.
So no guess at the size of records is needed, and none can be wrong.
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
    """A span that a task is to read: up to its end, or until its values have `bytes_max` bytes."""

    span: OffsetSpan
    bytes_max: int
    begin: StartOffset | None = (
        None  # where to begin instead of the span's start, with the leader epoch to compare
    )

    @property
    def records(self) -> int:
        """At most; transaction markers leave gaps."""
        return self.span.end - self.span.start

    @property
    def partition(self) -> Partition:
        """Of which topic-partition."""
        return Partition(self.span.topic, self.span.partition)


class PlannedBatch(NamedTuple):
    """A batch: where its files go, and what each task reads. Travels as the source's offset."""

    folder: str
    tasks: tuple[tuple[ReadSpan, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """For Spark's offset log."""
        tasks = [[[r.span.to_list(), r.bytes_max, r.begin] for r in task] for task in self.tasks]
        return {"folder": self.folder, "tasks": tasks}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> PlannedBatch:
        """The inverse."""
        return cls(
            found["folder"], tuple(tuple(_read_span(*r) for r in task) for task in found["tasks"])
        )


def _read_span(span: Sequence[Any], bytes_max: int, begin: Sequence[int] | None) -> ReadSpan:
    return ReadSpan(
        OffsetSpan.from_list(span), bytes_max, None if begin is None else StartOffset(*begin)
    )


def begin_of(p: StagingPosition, log_start: int) -> StartOffset | None:
    """Return where reading on from the position begins, with the leader epoch of the last record
    that was staged.

    The epoch belongs to the offset after that record. Markers behind it may be of a later epoch, so
    with the position itself a broker would report a truncation that never was. None where no epoch
    is known, or the log no longer has that offset.
    """
    if p.leader_epoch is None or p.epoch_next is None or p.epoch_next < log_start:
        return None
    return StartOffset(p.epoch_next, p.leader_epoch)


def empty_span(p: StagingPosition) -> OffsetSpan:
    """Return the span of no offsets at the position."""
    return OffsetSpan(
        topic=p.topic,
        topic_id=p.topic_id,
        partition=p.partition,
        start=p.next_offset,
        end=p.next_offset,
    )


def plan_spans(
    positions: Iterable[StagingPosition],
    ends: Mapping[Partition, int],
    *,
    records_max: int,
    type_bytes_max: int,
    starts: Mapping[Partition, int] | None = None,
) -> list[ReadSpan]:
    """What the next batch reads of each partition that has a backlog: at least one offset, together
    at most `records_max`, unless there are more partitions than that.
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
            None if starts is None else begin_of(p, starts[p.topic_partition]),
        )
        for share, p in taken
    ]


def deal(spans: Collection[ReadSpan], tasks_max: int) -> tuple[tuple[ReadSpan, ...], ...]:
    """The spans of each task: about the same number of records, a topic's partitions together
    unless that alone would keep a task longer than its part; fewer tasks where there is little to
    read. No task is empty.
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
