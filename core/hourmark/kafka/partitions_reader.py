"""Reads [start, end) of topic-partitions, only what is committed, outside of any group: the one way
to read a topic here.

Transaction markers and aborted records leave gaps that no reader is given. So a partition is read
once a record at or past its end comes, or once the end of its log is told and is not before it.
Memory is bounded by `batch` records and by librdkafka's queue, whatever the length of a span. How
much to read, and what an offset means that the log no longer has, is the caller's.

Records come as confluent_kafka's messages (`committed_reader`), or as columns (`packed_reader`).
"""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException

from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition, close_within

# 500 or 50,000 cost half as much again: the client's objects stay in the processor's cache
BATCH: Final = 2_000
STALL_S: Final = 60.0
_POLL_S: Final = 0.05  # markers are counted on and never come, so most spans end in one such wait
QUEUE_KB: Final = 32 * 1024  # librdkafka's own default is 64 MiB for each consumer
_GONE: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
_TRUNCATED: Final = (KafkaError._LOG_TRUNCATION,)
_SAYS_TRUNCATED: Final = (
    "truncat"  # without a policy for resets, librdkafka has its reason in the text alone
)
# what librdkafka, or the broker itself, says of a batch that is not as it was written
_DAMAGED: Final = (
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,  # of another format
    KafkaError._UNDERFLOW,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.UNKNOWN,
    KafkaError.KAFKA_STORAGE_ERROR,
)
_OF_ONE: Final = (  # what concerns one topic or partition
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)

RecordsT = TypeVar("RecordsT")  # of one partition, in its order


class PartitionError(Unavailable):
    """One partition cannot be read now; others can. `offset`: the next offset of it to read."""

    def __init__(self, message: str, partition: Partition, offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class OffsetOutOfRange(PartitionError):
    """A broker refused an offset: its log has it no longer, or not yet again."""


class LogTruncated(PartitionError):
    """The log lost records before this offset, and other records have their offsets (KIP-320)."""


class DamagedBatch(PartitionError):
    """A batch in the log is not as it was written: its CRC, its length or its base offset is
    wrong.
    """


class StartOffset(NamedTuple):
    """Where to begin: the next offset to read, and the leader epoch of the record right before it,
    None if unknown.
    """

    offset: int
    leader_epoch: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RecordRun(Generic[RecordsT]):
    """The next committed records of a partition, all of them below `next_offset`; none where only a
    gap was passed.

    `epoch`: the leader epoch of all these records, None if unknown; `epoch_next`: the offset after
    the last of them.
    """

    partition: Partition
    records: RecordsT
    next_offset: int
    epoch: int | None = None
    epoch_next: int | None = None


class PartitionEvent(NamedTuple):
    """What is told in a record's place: a partition's end, or an error.

    Of no partition: topic "", -1.
    """

    error: KafkaError
    partition: Partition
    offset: int


def reader_settings(queue_kb: int) -> dict[str, Any]:
    """librdkafka's, with `_` for `.`: of a consumer without a group that hears of each partition's
    end.
    """
    return {
        "group_id": "hourmark-read-only",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "enable_partition_eof": True,
        "auto_offset_reset": "error",
        # the end of a partition is told one empty fetch after its last record
        "fetch_wait_max_ms": 10,
        # of a second, the default, a reader that found the queue full idles half
        "fetch_queue_backoff_ms": 10,
        "queued_max_messages_kbytes": queue_kb,
    }


class PartitionsReader(abc.ABC, Generic[RecordsT]):
    """One consumer, for one `read` after the other.

    Not thread-safe. Its client's errors are KafkaException.
    """

    def __init__(self, name: str, *, batch: int, stall_s: float) -> None:
        self._name = name
        self._batch = batch
        self._stall_s = stall_s
        self._behind: dict[Partition, tuple[int, int]] = {}
        self._begun: dict[Partition, int] = {}  # the starts of spans
        self._failed: Callable[[PartitionError], None] | None = None
        self._closed = False

    def read(
        self,
        spans: Mapping[Partition, tuple[int, int]],
        *,
        starts: Mapping[Partition, StartOffset] | None = None,
        failed: Callable[[PartitionError], None] | None = None,
    ) -> Generator[list[RecordRun[RecordsT]], None, None]:
        """All committed records with start ≤ offset < end of each partition, in its order, as they
        come.

        `starts`: by partition, where to begin instead of its span's start, with the leader epoch
        that the broker compares. No committed record may lie between the two: one is Truncated. An
        empty span with a start is compared, too. `failed`: takes the error of a partition, which is
        then left, while the others are read on; without it the error is raised.

        OutOfRange for an offset that the log does not have; Truncated and Damaged as those say;
        Unavailable, naming a partition, for an error that does not pass without help, and after
        `stall_s` in which nothing came of any.
        """
        known = starts or {}
        self._behind = {
            p: (start, end) for p, (start, end) in spans.items() if start < end or p in known
        }
        self._failed = failed
        if not self._behind:
            return
        try:
            self._begun = {p: start for p, (start, _) in self._behind.items()}
            self._assign(
                {p: known.get(p, StartOffset(start)) for p, (start, _) in self._behind.items()}
            )
            moved_s = time.monotonic()
            while self._behind:
                # No more than can come: a batch is waited for until it is full. Each partition's
                # end is told as one more.
                wanted = sum(end - at for at, end in self._behind.values()) + len(self._behind)
                left = len(self._behind)
                runs = list(self._runs(min(self._batch, wanted)))
                if runs:
                    yield runs
                if runs or len(self._behind) < left:
                    moved_s = time.monotonic()  # whoever takes long with them is no stall
                elif time.monotonic() - moved_s > self._stall_s:
                    for partition in list(self._behind):
                        self._fail(self._stalled(partition))
        except KafkaException as error:
            raise Unavailable(
                f"reading {', '.join(map(str, spans))} of the {self._name} cluster failed: {error}"
            ) from error
        finally:
            if not self._closed:
                self._assign({})

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Read no more of these partitions, although their ends are not reached."""
        left = [p for p in partitions if self._behind.pop(p, None) is not None]
        if left and self._behind:
            self._unassign(left)

    def close(self) -> None:
        """Leave the cluster. May be called again."""
        if not self._closed:
            self._closed = True
            close_within(self._end, f"a reader of the {self._name} cluster")

    @abc.abstractmethod
    def _end(self) -> None:
        """End the client, however long that takes."""

    @abc.abstractmethod
    def _assign(self, places: Mapping[Partition, StartOffset]) -> None:
        """Read these from these offsets on, and no others."""

    @abc.abstractmethod
    def _unassign(self, partitions: Iterable[Partition]) -> None:
        """Read no more of these, which are read."""

    @abc.abstractmethod
    def _take(
        self, count: int, wait_s: float
    ) -> tuple[list[tuple[Partition, int | None, RecordsT]], list[PartitionEvent]]:
        """Return at most `count` records and events, in the order in which they came.

        Neighbours of one partition, with one leader epoch and ascending offsets, are one element
        with that epoch; none is empty.
        """

    @abc.abstractmethod
    def _part(self, records: RecordsT, end: int) -> tuple[RecordsT, int, int]:
        """Return those below the offset `end`, and the first and the last of all their offsets."""

    @abc.abstractmethod
    def _size(self, records: RecordsT) -> int:
        """Return how many there are."""

    @abc.abstractmethod
    def _nothing(self) -> RecordsT:
        """No records."""

    @abc.abstractmethod
    def _high(self, partition: Partition) -> int:
        """Return the end of the partition's log as of the last fetch; below 0 if it is unknown.
        Does not ask the broker.
        """

    def _runs(self, count: int) -> Iterator[RecordRun[RecordsT]]:
        """What came of partitions that are read.

        The end of a partition comes after its last record, often among the same messages. So does
        an error: of what came with it, the records before its offset count, as a client may skip
        what it cannot read and go on behind it.
        """
        taken, told = self._take(count, _POLL_S)
        errors = {t.partition: t for t in told if t.error.code() != KafkaError._PARTITION_EOF}
        done = []
        for partition, epoch, records in taken:
            if partition not in self._behind:
                continue
            at, end = self._behind[partition]
            before = end if partition not in errors else min(end, max(at, errors[partition].offset))
            below, first, last = self._part(records, before)
            if first < at:
                self._fail(self._out_of_order(partition, at, first, epoch))
                continue
            high = self._high(partition)
            if last >= high >= 0:
                self._fail(self._beyond(partition, at, last))
                continue
            is_sure = (
                last < end or high >= 0
            )  # else the next fetch was refused, and its error says whether `last` can be true
            if not is_sure:
                before = min(before, (self._part(below, end)[2] + 1) if self._size(below) else at)
            if partition in errors and not self._size(below):
                continue
            after = min(last + 1, before)
            self._behind[partition] = (after, end)
            last_below = None if not self._size(below) else self._part(below, end)[2] + 1
            yield RecordRun(partition, below, after, epoch, last_below)
            if after >= end and is_sure:
                done.append(partition)
        self.leave(done)
        for each in told:
            yield from self._heard(each)

    def _heard(self, told: PartitionEvent) -> Iterator[RecordRun[RecordsT]]:
        error, partition, _ = told
        at, end = self._behind.get(partition, (None, 0))
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            reached = min(told.offset, end)
            if at is not None and reached > at:
                self._behind[partition] = (reached, end)
                yield RecordRun(partition, self._nothing(), reached)
            if at is not None and reached >= end:
                del self._behind[partition]
        elif at is not None and (
            code in _TRUNCATED or (code in _GONE and _SAYS_TRUNCATED in str(error))
        ):
            self._fail(
                LogTruncated(
                    f"{partition} of the {self._name} cluster lost records before offset "
                    f"{at}: {error}",
                    partition,
                    at,
                )
            )
        elif at is not None and code in _GONE:
            self._fail(
                OffsetOutOfRange(
                    f"{partition} of the {self._name} cluster has no offset {at}: {error}",
                    partition,
                    at,
                )
            )
        elif at is not None and code in _DAMAGED:
            self._fail(
                DamagedBatch(
                    f"topic {partition.topic} partition {partition.partition} of the "
                    f"{self._name} cluster: the batch at offset "
                    f"{at} is damaged in the broker's log: {error}",
                    partition,
                    at,
                )
            )
        elif at is not None and code in _OF_ONE:
            self._fail(
                PartitionError(
                    f"reading {partition} of the {self._name} cluster failed: {error}",
                    partition,
                    at,
                )
            )
        elif error.fatal() or (
            at is not None and not error.retriable() and code != KafkaError._TRANSPORT
        ):
            what = partition if partition.topic else "records"
            raise Unavailable(f"reading {what} of the {self._name} cluster failed: {error}")

    def _fail(self, error: PartitionError) -> None:
        """Leave the partition and report its error; raise it where nobody takes it."""
        if self._failed is None:
            raise error
        if error.partition in self._behind:
            del self._behind[error.partition]
            self._unassign([error.partition])
            self._failed(error)

    def _out_of_order(
        self, partition: Partition, at: int, found: int, epoch: int | None
    ) -> PartitionError:
        if at > self._begun[partition] or found >= self._begun[partition]:
            return DamagedBatch(
                f"topic {partition.topic} partition {partition.partition} of the {self._name} "
                "cluster: a record with offset "
                f"{found} came after those below {at}: the base offset of a batch is damaged in "
                "the broker's log",
                partition,
                at,
            )
        return LogTruncated(
            f"{partition} of the {self._name} cluster has a committed record at offset {found} "
            f"(leader epoch {epoch}), where "
            f"there was none when it was read up to {at}: it lost records",
            partition,
            at,
        )

    def _beyond(self, partition: Partition, at: int, found: int) -> PartitionError:
        return DamagedBatch(
            f"topic {partition.topic} partition {partition.partition} of the {self._name} "
            f"cluster: a record has offset {found}, "
            "and the log ends before it: the base offset of a batch is damaged in the broker's "
            "log",
            partition,
            at,
        )

    def _stalled(self, partition: Partition) -> PartitionError:
        at, end = self._behind[partition]
        return PartitionError(
            f"topic {partition.topic} partition {partition.partition} of the {self._name} "
            "cluster: nothing came after offset "
            f"{at} (of {end}) for {self._stall_s:g} s; is the cluster healthy? `hourmark "
            "status` shows the local stack",
            partition,
            at,
        )
