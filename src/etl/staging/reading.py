"""Reads spans of offsets of many topic-partitions with one consumer, as Arrow columns, a piece of bounded size at a time.

`read_committed`; a span ends at the first record at or past its end, or at the partition's end once that is not before it,
because transaction markers and aborted records leave gaps. What retention has taken is DataLoss: nothing is ever skipped.

The cost is that of the client's message objects, about 1 µs of CPU a record: batches of 2,000 keep them in the processor's
cache (500 or 50,000 cost half as much again). A fetch that found the queue full tries again after 10 ms: librdkafka's default,
a second, leaves the reader idle half of the time.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from etl.errors import DataLoss
from etl.ledger.rows import Span
from etl.staging.planner import ReadSpan
from hourmark.config import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import Cluster, Partition, client_settings, quiet_logger

PIECE_BYTES: Final = 128 << 20  # of values that a task holds at once, several times over; far below the 2 GiB of an Arrow column
MESSAGES: Final = 2_000
POLL_S: Final = 0.1
STALL_S: Final = 60.0
QUEUE_KB: Final = 32 * 1024  # librdkafka's own default is 64 MiB for each consumer
_GONE: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)


@dataclasses.dataclass(frozen=True)
class Piece:
    """Rows of `table` (columns key, value, topic, partition, offset) are all committed records in `spans`."""

    table: pa.Table
    spans: tuple[Span, ...]


@dataclasses.dataclass(slots=True)
class _Reading:
    """How far a span was read: `next_offset` of it, `begun` at the last piece's end."""

    wanted: ReadSpan
    begun: int
    next_offset: int
    bytes_left: int
    done: bool = False


class SpanReader:
    """One consumer without a group, for one `read` after the other."""

    def __init__(self, cluster: KafkaCluster, max_message_bytes: int, *, stall_s: float = STALL_S) -> None:
        self._cluster = cluster
        self._stall_s = stall_s
        self._consumer = Consumer(
            client_settings(
                cluster,
                group_id="hourmark-read-only",
                enable_auto_commit=False,
                isolation_level="read_committed",
                enable_partition_eof=True,
                auto_offset_reset="error",
                fetch_wait_max_ms=10,
                fetch_queue_backoff_ms=10,
                max_partition_fetch_bytes=max_message_bytes,
                queued_max_messages_kbytes=QUEUE_KB,
            ),
            logger=quiet_logger(),
        )

    def read(self, spans: Sequence[ReadSpan], piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
        """All committed records of the spans, in pieces of about so many bytes of values, each partition's in order.

        DataLoss, naming the place, where they are gone; Unavailable, naming a partition, after `stall_s` without progress.
        """
        readings = {s.partition: _Reading(s, s.span.start, s.span.start, s.bytes_max) for s in spans if s.records > 0}
        if not readings:
            return
        self._consumer.assign([TopicPartition(p.topic, p.partition, r.begun) for p, r in readings.items()])
        try:
            yield from self._pieces(readings, piece_bytes)
        except KafkaException as error:
            raise Unavailable(f"reading {', '.join(map(str, readings))} of the central cluster failed: {error}") from error
        finally:
            self._consumer.unassign()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the cluster."""
        self._consumer.close()

    def _pieces(self, readings: dict[Partition, _Reading], piece_bytes: int) -> Iterator[Piece]:
        taken: list[pa.RecordBatch] = []
        size, moved_s = 0, time.monotonic()
        while behind := [r for r in readings.values() if not r.done]:
            wanted = sum(r.wanted.span.end - r.next_offset for r in behind) + len(behind)
            messages = self._consumer.consume(min(MESSAGES, wanted), POLL_S)
            before = sum(r.next_offset for r in behind)
            batch = self._take(messages, readings)
            if batch is not None:
                taken.append(batch)
                size += batch.column("value").nbytes
            if sum(r.next_offset for r in behind) > before or any(r.done for r in behind):
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > self._stall_s:
                r = behind[0]
                raise Unavailable(
                    f"topic {r.wanted.partition.topic} partition {r.wanted.partition.partition}: nothing came after offset "
                    f"{r.next_offset} (of {r.wanted.span.end}) for {self._stall_s:.0f} s; is the central cluster healthy?"
                )
            if size >= piece_bytes:
                yield from _piece(taken, readings)
                taken, size = [], 0
        yield from _piece(taken, readings)

    def _take(self, messages: list[Message], readings: dict[Partition, _Reading]) -> pa.RecordBatch | None:
        """Rows of those messages that belong to a span; moves the readings on.

        Records come first: the end of a partition is told after its last record, often among the same messages.
        """
        errors = [m.error() for m in messages]
        failed = [(m, error) for m, error in zip(messages, errors, strict=True) if error is not None]
        records = messages if not failed else [m for m, error in zip(messages, errors, strict=True) if error is None]
        batch = None
        if records:
            batch = _columns(records)
            kept = np.ones(len(records), bool)
            if ended := _keep(batch, readings, kept):
                self._consumer.incremental_unassign([TopicPartition(p.topic, p.partition) for p in ended])
            batch = batch if kept.all() else batch.filter(pa.array(kept))
        for message, error in failed:
            self._on_error(message, error, readings)
        return batch

    def _on_error(self, message: Message, error: KafkaError, readings: dict[Partition, _Reading]) -> None:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        r = readings.get(Partition(topic, number)) if topic is not None and number is not None else None
        if error.code() == KafkaError._PARTITION_EOF:
            if r is not None and not r.done and offset is not None and offset >= r.wanted.span.end:
                r.next_offset, r.done = r.wanted.span.end, True
        elif r is not None and error.code() in _GONE:
            self._refuse(r.wanted.partition, r.next_offset)
        elif error.fatal() or (r is not None and not error.retriable() and error.code() != KafkaError._TRANSPORT):
            raise Unavailable(f"reading {topic} partition {number} of the central cluster failed: {error}")

    def _refuse(self, partition: Partition, offset: int) -> None:
        """DataLoss only if the log says so too: a broker that comes back may refuse for a moment what it has."""
        central = Cluster(self._cluster, "central")
        start, end = central.starts([partition])[partition], central.ends([partition], committed=False)[partition]
        place = f"topic {partition.topic} partition {partition.partition}: offset {offset} is to be staged"
        if start <= offset <= end:
            raise Unavailable(f"{place}, and was refused although the log has offsets {start} to {end}; it is read again")
        raise DataLoss(
            f"{place}, but the log has offsets {start} to {end}: what lies between is lost to retention. An operator must "
            "decide; nothing is skipped by itself"
        )


def _columns(messages: list[Message]) -> pa.RecordBatch:
    columns = [
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.value() for m in messages], pa.binary()),
        pa.array([m.topic() for m in messages], pa.string()).dictionary_encode(),
        pa.array([m.partition() for m in messages], pa.int32()),
        pa.array([m.offset() for m in messages], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _keep(batch: pa.RecordBatch, readings: dict[Partition, _Reading], kept: npt.NDArray[np.bool_]) -> list[Partition]:
    """Move the readings on by the rows, run by run of one partition; rows outside of the spans are marked False in `kept`.

    Returns partitions that are done although their log goes on.
    """
    topics = batch.column("topic")
    codes, numbers = topics.indices.to_numpy(), batch.column("partition").to_numpy()
    offsets = batch.column("offset").to_numpy()
    sizes = np.frombuffer(batch.column("value").buffers()[1], np.int32)
    breaks = np.flatnonzero((codes[1:] != codes[:-1]) | (numbers[1:] != numbers[:-1])) + 1
    names, ended = topics.dictionary.to_pylist(), []
    for low, high in zip([0, *breaks.tolist()], [*breaks.tolist(), len(offsets)], strict=True):
        partition = Partition(names[codes[low]], int(numbers[low]))
        r = readings.get(partition)
        if r is None or r.done:
            kept[low:high] = False
            continue
        cut = low + int(np.searchsorted(offsets[low:high], r.wanted.span.end))
        kept[cut:high] = False
        if cut > low:
            r.next_offset = int(offsets[cut - 1]) + 1
            r.bytes_left -= int(sizes[cut] - sizes[low])
        if cut < high or r.next_offset >= r.wanted.span.end:
            r.next_offset, r.done = r.wanted.span.end, True
        elif r.bytes_left <= 0:
            r.done = True
        if r.done:
            ended.append(partition)
    return ended


def _piece(taken: list[pa.RecordBatch], readings: dict[Partition, _Reading]) -> Iterator[Piece]:
    """What was read since the last piece, if that is anything."""
    spans = []
    for r in readings.values():
        if r.next_offset > r.begun:
            spans.append(dataclasses.replace(r.wanted.span, start=r.begun, end=r.next_offset))
            r.begun = r.next_offset
    if spans:
        yield Piece(pa.Table.from_batches(taken, _SCHEMA), tuple(spans))
