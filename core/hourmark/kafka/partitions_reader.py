"""Base of the readers of committed Kafka records.

A reader reads the spans [start, end) of several topic-partitions with isolation level
`read_committed` and without a consumer group. All components read topics with it.

Transaction markers and aborted records leave gaps in the offsets that no consumer receives. A span
is therefore complete when a record at or after its end arrives, or when the broker reports the end
of the partition at or after it. Memory is bounded by `batch` records and by librdkafka's queue,
whatever the length of a span.

`committed_reader` returns records as confluent_kafka messages, `packed_reader` as columns.
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

# 500 or 50,000 cost 50 % more: with 2,000, the client's objects fit into the processor's cache
BATCH: Final = 2_000
STALL_S: Final = 60.0
_POLL_S: Final = (
    0.05  # transaction markers are never delivered, so most spans end with one such wait
)
QUEUE_KB: Final = 32 * 1024  # librdkafka's own default is 64 MiB for each consumer
_GONE: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
_TRUNCATED: Final = (KafkaError._LOG_TRUNCATION,)
_SAYS_TRUNCATED: Final = (
    "truncat"  # without a reset policy, librdkafka gives the reason in the text only
)
# errors of librdkafka or the broker for a damaged batch
_DAMAGED: Final = (
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,  # an unknown record format
    KafkaError._UNDERFLOW,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.UNKNOWN,
    KafkaError.KAFKA_STORAGE_ERROR,
)
_OF_ONE: Final = (  # errors that concern one topic or partition
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)

RecordsT = TypeVar("RecordsT")  # records of one partition, in offset order


class PartitionError(Unavailable):
    """A topic-partition cannot be read at the moment; other partitions may be readable.

    The exception can be pickled, for example to pass it from a Spark task to the driver.

    Attributes:
        message: Description of the error for users.
        partition: The partition.
        offset: The next offset to read from the partition.
    """

    def __init__(self, message: str, partition: Partition, offset: int) -> None:
        super().__init__(message, partition, offset)
        self.message = message
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        return self.message


class OffsetOutOfRange(PartitionError):
    """A broker rejected a fetch because the partition's log does not contain the offset.

    The usual causes are that retention deleted the records or that the topic was recreated.
    """


class LogTruncated(PartitionError):
    """A partition's log lost records before the next offset to read (KIP-320).

    Since then, other records may have been written at the same offsets.
    """


class DamagedBatch(PartitionError):
    """A record batch in the log of a topic-partition has a wrong CRC, length or base offset.

    The records before the batch can still be read.
    """


class StartOffset(NamedTuple):
    """The start position for reading a partition, with the epoch of the previous record.

    Attributes:
        offset: Next offset to read.
        leader_epoch: Leader epoch of the record right before `offset`; None if unknown. The broker
            compares the epoch with its log to detect truncation (KIP-320).
    """

    offset: int
    leader_epoch: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RecordRun(Generic[RecordsT]):
    """Consecutive committed records of one topic-partition, in offset order.

    Attributes:
        partition: The partition.
        records: The records, all below `next_offset`. Empty if the reader only skipped offsets
            without committed records.
        next_offset: Next offset to read from the partition.
        epoch: Leader epoch of all records; None if unknown.
        epoch_next: Offset after the last record, where the validity of `epoch` ends; None if there
            are no records.
    """

    partition: Partition
    records: RecordsT
    next_offset: int
    epoch: int | None = None
    epoch_next: int | None = None


class PartitionEvent(NamedTuple):
    """An event that a Kafka client returns instead of a record: end of partition, or an error.

    Attributes:
        error: The Kafka error. The code `_PARTITION_EOF` marks the end of a partition.
        partition: The topic-partition. If the event concerns the whole client, its topic is "" and
            its number is -1.
        offset: The offset of the event in the partition.
    """

    error: KafkaError
    partition: Partition
    offset: int


def reader_settings(queue_kb: int) -> dict[str, Any]:
    """Return the librdkafka settings for a consumer that reads without a consumer group.

    The consumer does not commit offsets and reads only committed records. It reports the end of
    each partition. If an offset is invalid, it reports an error instead of resetting the offset.

    Args:
        queue_kb: Size limit of librdkafka's fetch queue, in KiB.

    Returns:
        A dict of librdkafka settings. Their names have `_` in place of `.`.
    """
    return {
        "group_id": "hourmark-read-only",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "enable_partition_eof": True,
        "auto_offset_reset": "error",
        # the end of a partition is reported one empty fetch after its last record
        "fetch_wait_max_ms": 10,
        # with the default of 1 s, a reader that found the queue full idles for half of it
        "fetch_queue_backoff_ms": 10,
        "queued_max_messages_kbytes": queue_kb,
    }


class PartitionsReader(abc.ABC, Generic[RecordsT]):
    """Base class of Kafka consumers that read offset ranges of partitions without a consumer group.

    Each subclass adapts one client library, and must raise the library's errors as
    `KafkaException`. Only one `read` may run at a time. Not thread-safe.

    Args:
        name: Name of the cluster in error messages, such as `edge`.
        batch: Maximum number of records per fetch.
        stall_s: A read fails after this number of seconds without a record.
    """

    def __init__(self, name: str, *, batch: int, stall_s: float) -> None:
        self._name = name
        self._batch = batch
        self._stall_s = stall_s
        self._behind: dict[Partition, tuple[int, int]] = {}
        self._begun: dict[Partition, int] = {}  # start offsets of the spans
        self._on_error: Callable[[PartitionError], None] | None = None
        self._closed = False

    def read(
        self,
        spans: Mapping[Partition, tuple[int, int]],
        *,
        starts: Mapping[Partition, StartOffset] | None = None,
        on_error: Callable[[PartitionError], None] | None = None,
    ) -> Generator[list[RecordRun[RecordsT]], None, None]:
        """Read offset ranges, and yield their committed records as they arrive.

        Records of one partition are returned in offset order. Records of different partitions are
        interleaved.

        Args:
            spans: Maps each partition to the offset range to read: start (inclusive) and end
                (exclusive).
            starts: Maps partitions that were read before to the position of the previous read, to
                detect whether the log has been truncated since then. The position may be below the
                start of the range, but a committed record in between counts as a truncation.
                Partitions with an empty range are checked too.
            on_error: Called with the error of a partition that cannot be read; the other partitions
                are still read. If None, the error is raised.

        Yields:
            Non-empty lists of runs (consecutive records of one partition).

        Raises:
            OffsetOutOfRange: The log of a partition does not contain the next offset to read.
            LogTruncated: The log lost records before the next offset to read.
            DamagedBatch: A record batch is corrupt in the broker's log.
            PartitionError: Access to a topic was refused, a topic is unknown, or nothing arrived
                for `stall_s` seconds.
            Unavailable: The cluster failed with an error that a retry does not resolve.
        """
        known = starts or {}
        self._behind = {
            p: (start, end) for p, (start, end) in spans.items() if start < end or p in known
        }
        self._on_error = on_error
        if not self._behind:
            return
        try:
            self._begun = {p: start for p, (start, _) in self._behind.items()}
            self._assign(
                {p: known.get(p, StartOffset(start)) for p, (start, _) in self._behind.items()}
            )
            moved_s = time.monotonic()
            while self._behind:
                # Request no more than can arrive, because the client waits for a full batch. The
                # end of each partition counts as one more.
                wanted = sum(end - at for at, end in self._behind.values()) + len(self._behind)
                left = len(self._behind)
                runs = list(self._next_runs(min(self._batch, wanted)))
                if runs:
                    yield runs
                if runs or len(self._behind) < left:
                    moved_s = time.monotonic()  # time that the caller takes is not a stall
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
        """Stop reading some partitions of the running `read` early.

        No more records of these partitions are returned. Partitions that are not being read are
        ignored.

        Args:
            partitions: The topic-partitions to stop reading.
        """
        left = [p for p in partitions if self._behind.pop(p, None) is not None]
        if left and self._behind:
            self._unassign(left)

    def close(self) -> None:
        """Close the Kafka consumer, and wait at most 30 s. Further calls have no effect."""
        if not self._closed:
            self._closed = True
            close_within(self._close_client, f"a reader of the {self._name} cluster")

    @abc.abstractmethod
    def _close_client(self) -> None: ...

    @abc.abstractmethod
    def _assign(self, places: Mapping[Partition, StartOffset]) -> None:
        """Assign topic-partitions to the consumer, replacing its previous assignment.

        Args:
            places: Maps each partition to its start offset. Empty to stop reading.
        """

    @abc.abstractmethod
    def _unassign(self, partitions: Iterable[Partition]) -> None: ...

    @abc.abstractmethod
    def _poll(
        self, count: int, wait_s: float
    ) -> tuple[list[tuple[Partition, int | None, RecordsT]], list[PartitionEvent]]:
        """Fetch the next records and events from the Kafka client.

        Args:
            count: Maximum number of records and events.
            wait_s: Maximum time to wait for them, in seconds.

        Returns:
            A list of record batches and a list of events, each in arrival order. A batch is a tuple
            of partition, leader epoch (None if unknown) and one or more records with ascending
            offsets. Both lists are empty if nothing arrived in time.
        """

    @abc.abstractmethod
    def _records_below(self, records: RecordsT, end: int) -> tuple[RecordsT, int, int]:
        """Return the records below an offset.

        Args:
            records: At least one record, in offset order.
            end: End offset (exclusive).

        Returns:
            A tuple of the records below `end`, which may be empty, the offset of the first record
            in `records`, and the offset of the last one.
        """

    @abc.abstractmethod
    def _count(self, records: RecordsT) -> int: ...

    @abc.abstractmethod
    def _empty(self) -> RecordsT: ...

    @abc.abstractmethod
    def _high_watermark(self, partition: Partition) -> int:
        """Return the high watermark of a partition as of the last fetch.

        No request is sent to the broker.

        Args:
            partition: An assigned topic-partition.

        Returns:
            The offset after the last record in the log; a negative number if it is unknown.
        """

    def _next_runs(self, count: int) -> Iterator[RecordRun[RecordsT]]:
        """Perform one fetch for the running `read`, and yield the records that belong to it.

        Records of a partition at or after the offset of an error are discarded, because a client
        may skip an unreadable batch and continue after it.

        Args:
            count: Maximum number of records and events to fetch.

        Yields:
            Runs (consecutive records of one partition).

        Raises:
            PartitionError: A partition cannot be read, and `read` was called without `on_error`.
            Unavailable: The cluster failed with an error that a retry does not resolve.
        """
        taken, events = self._poll(count, _POLL_S)
        errors = {t.partition: t for t in events if t.error.code() != KafkaError._PARTITION_EOF}
        done = []
        for partition, epoch, records in taken:
            if partition not in self._behind:
                continue
            at, end = self._behind[partition]
            before = end if partition not in errors else min(end, max(at, errors[partition].offset))
            below, first, last = self._records_below(records, before)
            if first < at:
                self._fail(self._out_of_order(partition, at, first, epoch))
                continue
            high = self._high_watermark(partition)
            if last >= high >= 0:
                self._fail(self._beyond(partition, at, last))
                continue
            is_sure = (
                last < end or high >= 0
            )  # otherwise the next fetch failed, and its error decides whether `last` is valid
            if not is_sure:
                before = min(
                    before, (self._records_below(below, end)[2] + 1) if self._count(below) else at
                )
            if partition in errors and not self._count(below):
                continue
            after = min(last + 1, before)
            self._behind[partition] = (after, end)
            last_below = None if not self._count(below) else self._records_below(below, end)[2] + 1
            yield RecordRun(partition, below, after, epoch, last_below)
            if after >= end and is_sure:
                done.append(partition)
        self.leave(done)
        for each in events:
            yield from self._handle_event(each)

    def _handle_event(self, event: PartitionEvent) -> Iterator[RecordRun[RecordsT]]:
        error, partition, _ = event
        at, end = self._behind.get(partition, (None, 0))
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            reached = min(event.offset, end)
            if at is not None and reached > at:
                self._behind[partition] = (reached, end)
                yield RecordRun(partition, self._empty(), reached)
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
        if self._on_error is None:
            raise error
        if error.partition in self._behind:
            del self._behind[error.partition]
            self._unassign([error.partition])
            self._on_error(error)

    def _out_of_order(
        self, partition: Partition, at: int, found: int, epoch: int | None
    ) -> PartitionError:
        if at > self._begun[partition] or found >= self._begun[partition]:
            return DamagedBatch(
                f"topic {partition.topic} partition {partition.partition} of the {self._name} "
                f"cluster: a record with offset {found} was received after the records below "
                f"offset {at}: the base offset of a batch is damaged in the broker's log",
                partition,
                at,
            )
        return LogTruncated(
            f"{partition} of the {self._name} cluster has a committed record at offset {found} "
            f"(leader epoch {epoch}), which did not exist when the partition was read up to "
            f"{at}: the log was truncated",
            partition,
            at,
        )

    def _beyond(self, partition: Partition, at: int, found: int) -> PartitionError:
        return DamagedBatch(
            f"topic {partition.topic} partition {partition.partition} of the {self._name} "
            f"cluster: a record has offset {found}, which is past the end of the log: the base "
            "offset of a batch is damaged in the broker's log",
            partition,
            at,
        )

    def _stalled(self, partition: Partition) -> PartitionError:
        at, end = self._behind[partition]
        return PartitionError(
            f"topic {partition.topic} partition {partition.partition} of the {self._name} "
            f"cluster: no record was received after offset {at} (of {end}) for {self._stall_s:g} "
            "s; `hourmark status` shows which brokers do not respond, and why",
            partition,
            at,
        )
