"""Kafka clusters as lists, and mirrors that copy from edges to the central one: what `KafkaSiteClusters` and
staging are given.

Offsets behave as in Kafka where closing depends on it: the mirror writes in transactions whose
markers take an offset and give no record, retention moves a log's start, a topic that is recreated
has another id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from hourmark.errors import Unavailable
from hourmark.kafka.clients import Offset, Partition, TopicInfo
from hourmark.kafka.topic_names import central_topic

ALIAS = "edge"
FURTHER = "west"  # of worlds with a second site


@dataclasses.dataclass(frozen=True)
class Record:
    """What was appended, when (the fake clock's milliseconds), and what the test knows of it."""

    key: bytes
    value: bytes
    at_ms: int


@dataclasses.dataclass
class Log:
    """A partition. `records[n]` has offset n; None is a transaction marker, or gone."""

    topic_id: str
    records: list[Record | None] = dataclasses.field(default_factory=list)
    start: int = 0
    epochs: list[tuple[int, int]] = dataclasses.field(
        default_factory=lambda: [(0, 0)]
    )  # leader epochs, from which offset on

    @property
    def epoch(self) -> int:
        """Of the leader."""
        return self.epochs[-1][0]

    def elect(self) -> None:
        """Another leader, that has all there is now."""
        end = len(self.records)
        self.epochs = [*((e, at) for e, at in self.epochs if at < end), (self.epoch + 1, end)]

    def epoch_of(self, offset: int) -> int:
        """Of the record at the offset."""
        return next(e for e, at in reversed(self.epochs) if at <= offset)

    def last_of(self, start: int, end: int) -> tuple[int, int] | tuple[None, None]:
        """The leader epoch of the last record in [start, end), and the offset after it."""
        for offset in range(end - 1, start - 1, -1):
            if self.records[offset] is not None:
                return self.epoch_of(offset), offset + 1
        return None, None

    def is_truncated(self, after: int, epoch: int) -> bool:
        """As a broker says it of the end offset of an epoch (KIP-320)."""
        return next((at for e, at in self.epochs if e > epoch), len(self.records)) < after


class FakeCluster:
    """Topics as lists, asked as `hourmark.kafka.clients.Cluster` is.

    `offset_without_leader`: what is answered for partitions without a leader, in place of an error.
    `has_epochs`: whether brokers report leader epochs.
    """

    offset_without_leader: int | None = None
    has_epochs = True

    def __init__(self, name: str, partitions: Iterable[Partition]) -> None:
        self.name = name
        self.logs = {p: Log(f"{name}-{p.topic}") for p in partitions}
        self.leaderless: dict[Partition, int] = {}  # how many questions for offsets find no leader

    def cluster_id(self) -> str:
        return f"{self.name}-cluster"

    def append(self, partition: Partition, record: Record | None) -> None:
        self.logs[partition].records.append(record)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        found = {}
        for name in names:
            numbers = tuple(sorted(p.partition for p in self.logs if p.topic == name))
            if numbers:
                found[name] = TopicInfo(name, self.logs[Partition(name, 0)].topic_id, numbers)
        return found

    def starts(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return self._offsets({p: self.logs[p].start for p in partitions})

    def ends(
        self, partitions: Sequence[Partition], *, committed: bool = True
    ) -> dict[Partition, int]:
        return self._offsets(
            {
                p: Offset(
                    len(self.logs[p].records), self.logs[p].epoch if self.has_epochs else None
                )
                for p in partitions
            }
        )

    def truncated(self, begins: Mapping[Partition, tuple[int, int]]) -> set[Partition]:
        return {p for p, of in begins.items() if self.logs[p].is_truncated(*of)}

    def _offsets(self, known: Mapping[Partition, int]) -> dict[Partition, int]:
        away = self.away(known)
        if away and self.offset_without_leader is not None:
            return {**known, **dict.fromkeys(away, self.offset_without_leader)}
        if away:
            raise Unavailable(f"{self.name}: {away[0]} has no leader")
        return dict(known)

    def away(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Those of the partitions that have no leader at this question."""
        found = [p for p in partitions if self.leaderless.get(p)]
        for p in found:
            self.leaderless[p] -= 1
        return found


class FakeMirror:
    """Copies edge → central, partition by partition, exactly once unless told to be faulty; knows
    its own positions.
    """

    def __init__(self, edge: FakeCluster, central: FakeCluster, alias: str = ALIAS) -> None:
        self.edge, self._central, self.alias = edge, central, alias
        self.positions = dict.fromkeys(edge.logs, 0)
        self.skipped: list[Record] = []  # lost to retention, dropped, or jumped over

    def refresh(self) -> dict[Partition, int]:
        return {p: position for p, position in self.positions.items() if position}

    def close(self) -> None:
        pass

    def lag(self, partition: Partition) -> int:
        log = self.edge.logs[partition]
        return len(log.records) - max(self.positions[partition], log.start)

    def copy(self, partition: Partition, count: int, *, drop: int | None = None) -> None:
        """The next records in one transaction.

        `drop`: a faulty mirror leaves this one out and writes the one before it twice.
        """
        log = self.edge.logs[partition]
        first = max(self.positions[partition], log.start)
        end = min(len(log.records), first + count)
        target = Partition(central_topic(partition.topic, self.alias), partition.partition)
        for offset in range(first, end):
            record = log.records[offset]
            assert record is not None
            if drop is not None and offset - first == drop:
                self.skipped.append(record)
                if offset > first:
                    self._central.append(target, log.records[offset - 1])
                continue
            self._central.append(target, record)
        if end > first:
            self._central.append(target, None)
            self.positions[partition] = end

    def abort(self, partition: Partition, count: int) -> None:
        """A transaction that copies is aborted, and takes offsets all the same: readers see none of
        its records.
        """
        for _ in range(min(count, self.lag(partition)) + 1):
            self._central.append(
                Partition(central_topic(partition.topic, self.alias), partition.partition), None
            )

    def overtake(self, partition: Partition) -> None:
        """The edge's retention deletes all that the log holds, copied or not; the mirror goes on
        after that.

        As with MirrorMaker 2, its committed position stays where it was until it has copied
        something.
        """
        log = self.edge.logs[partition]
        self.skipped += [
            r for r in log.records[max(self.positions[partition], log.start) :] if r is not None
        ]
        log.start = len(log.records)
