"""Reads offset spans of many central partitions as Arrow columns, in chunks of bounded size.

Extends `hourmark.kafka.partitions_reader` by a byte limit per span and by DataLoss for records that
retention has deleted: no record is skipped. With the compiled module, records are not converted to
Python objects, which cost about 1 µs of CPU each.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

import hourmark_native as native
from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import Cluster, Partition, supports_native_client
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.packed_reader import NO_KEY, NO_VALUE, PackedReader, PackedRecords
from hourmark.kafka.partitions_reader import (
    STALL_S,
    LogTruncated,
    OffsetOutOfRange,
    PartitionError,
    PartitionsReader,
    RecordRun,
)
from hourmark_etl.errors import DataLoss
from hourmark_etl.model import OffsetSpan
from hourmark_etl.staging.plan import ReadSpan

FETCH_BYTES: Final = (
    1 << 20
)  # of records at once: what is fetched past a span's end is parsed for nothing
QUEUE_KB: Final = 2 * 1024  # likewise
PIECE_BYTES: Final = (
    128 << 20
)  # of values that a task holds at once, several times over; far below the 2 GiB of an Arrow column
_SCHEMA: Final = pa.schema(
    [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", "int32"),
        ("offset", "int64"),
    ]
)


class UnreadablePartition(NamedTuple):
    """A Kafka partition that could not be read completely.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        offset: First offset that could not be read.
        why: Human-readable reason.
        is_truncated: Whether the partition's log has lost records before this offset.
    """

    topic: str
    partition: int
    offset: int
    why: str
    is_truncated: bool = False

    @classmethod
    def from_error(cls, error: PartitionError) -> UnreadablePartition:
        """Convert a Kafka read error to a description that can be pickled.

        Args:
            error: Error that the Kafka reader raised for a partition.

        Returns:
            Topic, partition, offset and reason of the error.
        """
        return cls(
            error.partition.topic,
            error.partition.partition,
            error.offset,
            str(error),
            isinstance(error, LogTruncated),
        )


class RecordChunk(NamedTuple):
    """A chunk of committed Kafka records and the offset ranges that it covers.

    Attributes:
        table: All committed records in `spans`, with the columns key, value, topic, partition and
            offset.
        spans: Offset ranges of the chunk, one per partition.
        single_epoch_partitions: Partitions whose records in the table all have the same leader
            epoch. The epoch is the `leader_epoch` of the partition's span.
    """

    table: pa.Table
    spans: tuple[OffsetSpan, ...]
    single_epoch_partitions: frozenset[Partition] = frozenset()


@dataclasses.dataclass(slots=True)
class _Reading:
    wanted: ReadSpan
    begun: int  # next offset at the end of the last piece
    next_offset: int  # next offset to read
    bytes_left: int
    epoch: int | None = None
    epoch_next: int | None = None
    epochs: set[int | None] = dataclasses.field(default_factory=set)  # since the last piece


class SpanReader:
    """A Kafka consumer that reads given offset ranges and then stops.

    Use an instance as a context manager, which closes the consumer. Only one call of `read` may be
    active at a time.

    Args:
        cluster: Settings of the Kafka cluster.
        max_message_bytes: Maximum size of a Kafka message in bytes. It limits the size of fetches.
        stall_s: Timeout in seconds. Reading fails if there is no progress for this time.
    """

    def __init__(
        self, cluster: KafkaCluster, max_message_bytes: int, *, stall_s: float = STALL_S
    ) -> None:
        self._cluster = cluster
        fetch_bytes = min(
            FETCH_BYTES, max_message_bytes
        )  # a broker gives a batch that is larger all the same (KIP-74)
        settings = {
            "queue_kb": QUEUE_KB,
            "max_partition_fetch_bytes": fetch_bytes,
            "fetch_max_bytes": fetch_bytes,
        }
        settings["message_max_bytes"] = (
            fetch_bytes  # a producer's, but librdkafka takes no smaller fetch than it
        )
        self._reader: PartitionsReader[Any]
        self._columns: Callable[[Sequence[RecordRun[Any]]], pa.RecordBatch]
        if native.MODULE is not None and supports_native_client(native.MODULE):
            self._reader, self._columns = (
                PackedReader(native.MODULE, cluster, "central", stall_s=stall_s, **settings),
                _packed,
            )
        else:
            self._reader, self._columns = (
                CommittedReader(cluster, "central", stall_s=stall_s, **settings),
                _columns,
            )

    def read(
        self,
        spans: Sequence[ReadSpan],
        chunk_bytes: int = PIECE_BYTES,
        unread: list[UnreadablePartition] | None = None,
    ) -> Iterator[RecordChunk]:
        """Yield the committed records of several offset ranges in chunks.

        The records of each partition are in ascending order of offsets.

        Args:
            spans: Offset ranges to read, each with a size limit.
            chunk_bytes: Approximate size of a chunk, in bytes of record values.
            unread: List to which partitions that cannot be read are added; the other partitions are
                still read. If None, the first such partition raises an exception.

        Yields:
            The chunks; nothing if the ranges are empty.

        Raises:
            DataLoss: The log no longer has some of the offsets. The message contains topic,
                partition and offsets.
            PartitionError: A partition cannot be read, and `unread` is None.
            Unavailable: The cluster cannot be reached.
        """
        failed = (
            None
            if unread is None
            else lambda error: unread.append(UnreadablePartition.from_error(self._failed(error)))
        )
        readings = {
            s.partition: _Reading(s, s.span.start, s.span.start, s.bytes_max)
            for s in spans
            if s.records > 0 or s.begin
        }
        taken: list[pa.RecordBatch] = []
        size = 0
        try:
            with contextlib.closing(
                self._reader.read(
                    {p: (r.begun, r.wanted.span.end) for p, r in readings.items()},
                    starts={
                        p: begin
                        for p, r in readings.items()
                        if (begin := r.wanted.begin) is not None
                    },
                    on_error=failed,
                )
            ) as batches:
                for runs in batches:
                    batch = self._columns(runs)
                    self._reader.leave(_used_up(readings, runs, batch))
                    taken.append(batch)
                    size += batch.column("value").nbytes
                    if size >= chunk_bytes:
                        yield from _piece(taken, readings)
                        taken, size = [], 0
        except OffsetOutOfRange as refused:
            raise self._failed(refused) from refused
        yield from _piece(taken, readings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def _failed(self, refused: PartitionError) -> PartitionError:
        # A recovering broker may briefly refuse offsets that it has, so the log's range decides
        # whether this is DataLoss.
        if not isinstance(refused, OffsetOutOfRange):
            return refused
        partition, offset = refused.partition, refused.offset
        central = Cluster(self._cluster, "central")
        start, end = (
            central.starts([partition])[partition],
            central.ends([partition], committed=False)[partition],
        )
        place = (
            f"topic {partition.topic} partition {partition.partition}: offset {offset} must be "
            "staged next"
        )
        if start <= offset <= end:
            what = (
                f"{place}, but reading it failed although the log has offsets {start} to {end}; "
                "retrying"
            )
            return PartitionError(what, partition, offset)
        raise DataLoss(
            f"{place}, but the log has offsets {start} to {end}: retention has deleted the "
            "records in between. No offset is skipped automatically; an operator must decide"
        ) from refused


def _columns(runs: Sequence[RecordRun[list[Message]]]) -> pa.RecordBatch:
    messages = [m for run in runs for m in run.records]
    keys, values = (
        pa.array(column, "binary")
        for column in ([m.key() for m in messages], [m.value() for m in messages])
    )
    return _batch(runs, keys, values, pa.array([m.offset() for m in messages], "int64"))


def _packed(runs: Sequence[RecordRun[PackedRecords]]) -> pa.RecordBatch:
    records = [run.records for run in runs]
    keys = pa.concat_arrays([_binary(of.key_ends, of.keys, of.nulls, NO_KEY) for of in records])
    values = pa.concat_arrays(
        [_binary(of.value_ends, of.values, of.nulls, NO_VALUE) for of in records]
    )
    return _batch(
        runs,
        keys,
        values,
        pa.array(np.concatenate([np.asarray(of.offsets, np.int64) for of in records])),
    )


def _binary(ends: bytes, content: bytes, nulls: bytes, null: int) -> pa.Array:
    there = (
        np.packbits(np.frombuffer(nulls, np.uint8) & null == 0, bitorder="little")
        if nulls
        else None
    )
    buffers = [
        None if there is None else pa.py_buffer(there),
        pa.py_buffer(ends),
        pa.py_buffer(content),
    ]
    return pa.Array.from_buffers(pa.binary(), len(ends) // 4 - 1, buffers)


def _batch(
    runs: Sequence[RecordRun[Any]], keys: pa.Array, values: pa.Array, offsets: pa.Array
) -> pa.RecordBatch:
    sizes = [len(run.records) for run in runs]
    names: dict[str, int] = {}
    codes = [names.setdefault(run.partition.topic, len(names)) for run in runs]
    topics = pa.DictionaryArray.from_arrays(
        np.repeat(np.array(codes, np.int32), sizes), pa.array(names, "string")
    )
    numbers = pa.array(
        np.repeat(np.array([run.partition.partition for run in runs], np.int32), sizes)
    )
    return pa.RecordBatch.from_arrays([keys, values, topics, numbers, offsets], schema=_SCHEMA)


def _used_up(
    readings: Mapping[Partition, _Reading], runs: Sequence[RecordRun[Any]], batch: pa.RecordBatch
) -> list[Partition]:
    places = np.frombuffer(batch.column("value").buffers()[1], np.int32)
    high = 0
    for run in runs:
        low, high = high, high + len(run.records)
        r = readings[run.partition]
        r.next_offset = run.next_offset
        if run.epoch_next is not None:
            r.epoch, r.epoch_next = run.epoch, run.epoch_next
            r.epochs.add(run.epoch)
        r.bytes_left -= int(places[high] - places[low])
    return [run.partition for run in runs if readings[run.partition].bytes_left <= 0]


def _piece(
    taken: list[pa.RecordBatch], readings: dict[Partition, _Reading]
) -> Iterator[RecordChunk]:
    spans = []
    one_epoch = frozenset(p for p, r in readings.items() if len(r.epochs) == 1)
    for r in readings.values():
        if r.next_offset > r.begun:
            spans.append(_span(r))
        r.begun, r.epoch, r.epoch_next, r.epochs = r.next_offset, None, None, set()
    if spans:
        yield RecordChunk(pa.Table.from_batches(taken, _SCHEMA), tuple(spans), one_epoch)


def _span(r: _Reading) -> OffsetSpan:
    epoch_next = None if r.epoch is None else r.epoch_next
    return dataclasses.replace(
        r.wanted.span, start=r.begun, end=r.next_offset, leader_epoch=r.epoch, epoch_next=epoch_next
    )
