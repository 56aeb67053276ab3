"""Traffic of the ETL's benchmarks: valid Hourmark records, a million in seconds.

Ranges of `RANGE_EVENTS` events come from `HOSTS_COUNT` hosts in the order of their event times,
with up to `TYPES_IN_RANGE` types per range. One range in a hundred is delivered twice, half of them
as the same range and half with new cuts and another range id. One in a hundred is an hour late. All
fields have a fixed length, so keys and values are assembled as byte matrices, one row per event,
without encoding single events. `check_sample` decodes some of them with Hourmark's own code.
"""

from __future__ import annotations

import dataclasses
import io
import string
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import fastavro
import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

from hourmark.avro.framing import FRAMING_SIZE, framing_header, unframe
from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import client_settings
from hourmark.kafka.topic_names import AUDIT, HOSTS, events_topic
from hourmark.records.audit import AuditRecord, Promise
from hourmark.records.event_id import EventId
from hourmark.records.host_reports import API_SOURCE, HostReport, SourceReport
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark.rules.event_types import EventType
from hourmark_etl.arrow import datum_hashes

RANGE_EVENTS: Final = 500
TYPES_IN_RANGE: Final = 10
HOSTS_COUNT: Final = 40
_BLOCK_RANGES: Final = 400  # made at once: 20 MB
_PATH: Final = b"/var/log/shop/app.log"
_FIRST_POSITION: Final = 1 << 21  # from here to 2^27 a zigzag varint has 4 bytes
Bytes = npt.NDArray[np.uint8]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrafficPlan:
    """The events that a benchmark delivers: `ranges` times `RANGE_EVENTS` distinct events.

    They are spread evenly over the hours.

    Attributes:
        duplicated: Share of ranges that are delivered twice.
        late: Share of ranges that arrive an hour late.
        payload: Bytes of text in each event.
    """

    types: tuple[str, ...]
    first_hour: Hour
    hours: int
    ranges: int
    seed: int
    duplicated: float = 0.01
    late: float = 0.01
    payload: int = 0

    @property
    def events(self) -> int:
        """Return the number of distinct events."""
        return self.ranges * RANGE_EVENTS

    @property
    def end(self) -> Hour:
        """Return the hour after the last one."""
        return Hour(
            self.first_hour.start_s + self.hours * self.first_hour.length_s,
            self.first_hour.length_s,
        )

    @property
    def all_hours(self) -> list[Hour]:
        """Return all hours in ascending order."""
        length = self.first_hour.length_s
        return [Hour(self.first_hour.start_s + n * length, length) for n in range(self.hours)]


@dataclasses.dataclass(kw_only=True)
class Delivered:
    """What was delivered, with which outputs are compared.

    Attributes:
        plan: The delivered plan.
        distinct: Number of distinct events by type and hour.
        low64_sums: Sum of the low 64 bits of distinct ids modulo 2^64, by type and hour.
        records: Number of records including duplicates, by type and hour.
        audit: Key and framed value of each audit record.
    """

    plan: TrafficPlan
    distinct: npt.NDArray[np.int64]
    low64_sums: npt.NDArray[np.uint64]  # modulo 2^64, over distinct ids
    records: npt.NDArray[np.int64]  # duplicates included
    value_bytes: int = 0
    audit: list[tuple[bytes, bytes]] = dataclasses.field(default_factory=list)  # key, framed value


def benchmark_type(name: str, partitions: int = 1, payload: int = 0) -> EventType:
    """Return the event type of the benchmarks: the envelope, a number, and a text if `payload` is
    not 0.
    """
    text = [{"name": "text", "type": "string"}] if payload else []
    return EventType(
        name=name, fields=[{"name": "number", "type": "long"}, *text], partitions=partitions
    )


def deliver(cluster: KafkaCluster, plan: TrafficPlan, schema_ids: dict[str, int]) -> Delivered:
    """Append all events of the plan to their topics as fast as possible, without audit records.

    Records carry their event time as timestamp, so that other programs need not decode them.
    `promise` sends the audit records.
    """
    producer = _producer(cluster, linger_ms=50)
    delivered = empty_delivery(plan)
    topics = [events_topic(t) for t in plan.types]
    for block in blocks(plan, schema_ids, delivered):
        _send(producer, topics, block, now=False)
    assert producer.flush(120) == 0, "brokers did not take all events within 120 s"
    return delivered


def stream(
    cluster: KafkaCluster,
    plan: TrafficPlan,
    schema_ids: dict[str, int],
    *,
    per_second: int,
    sent: Callable[[int], None],
    until: Callable[[], bool] = lambda: False,
) -> Delivered:
    """Append events at a rate, each range's audit record after it, as delivery services do.

    The rate may be lower if the brokers are slow; it is never higher. Records carry the time of
    sending.

    Args:
        cluster: Kafka cluster.
        plan: Events to deliver.
        schema_ids: Schema ID by event type.
        per_second: Events per second.
        sent: Function that receives the number of records sent so far.
        until: Function that returns true to stop early.

    Returns:
        What was sent.
    """
    producer = _producer(cluster, linger_ms=5)
    delivered = empty_delivery(plan)
    topics = [events_topic(t) for t in plan.types]
    began = time.monotonic()
    for block in blocks(
        plan, schema_ids, delivered, ranges=max(1, per_second // RANGE_EVENTS // 10)
    ):
        _send(producer, topics, block, now=True)
        assert producer.flush(60) == 0, "brokers did not take events within 60 s"
        for key, value in delivered.audit:
            producer.produce(AUDIT, key=key, value=value)
        delivered.audit.clear()
        sent(int(delivered.records.sum()))
        if until():
            break
        time.sleep(max(0.0, began + int(delivered.records.sum()) / per_second - time.monotonic()))
    assert producer.flush(60) == 0, "brokers did not take all audit records within 60 s"
    return delivered


def empty_delivery(plan: TrafficPlan) -> Delivered:
    """Return the state of a delivery before its first block."""
    shape = (len(plan.types), plan.hours)
    return Delivered(
        plan=plan,
        distinct=np.zeros(shape, np.int64),
        low64_sums=np.zeros(shape, np.uint64),
        records=np.zeros(shape, np.int64),
    )


def _producer(cluster: KafkaCluster, *, linger_ms: int) -> Producer:
    return Producer(
        client_settings(
            cluster,
            acks="all",
            enable_idempotence=True,
            compression_type="lz4",
            linger_ms=linger_ms,
            queue_buffering_max_messages=1_000_000,
            queue_buffering_max_kbytes=512_000,
        )
    )


def promise(cluster: KafkaCluster, delivered: Delivered) -> None:
    """Append the audit records, then a delivery service's report that all hours of the plan are
    over.
    """
    end_ms = delivered.plan.end.start_s * 1000
    producer = _producer(cluster, linger_ms=5)
    for key, value in delivered.audit:
        producer.produce(AUDIT, key=key, value=value)
        producer.poll(0)
    assert producer.flush(60) == 0, "brokers did not take all audit records within 60 s"
    producer.produce(HOSTS, key=_SERVICE.encode(), value=report(end_ms))
    assert producer.flush(60) == 0, "brokers did not take the report within 60 s"


def report(caught_up_at_ms: int) -> bytes:
    """Return a framed report of a delivery service that was received now."""
    now_ms = time.time_ns() // 1_000_000
    sources = (SourceReport(API_SOURCE, caught_up_at_ms, 0, 0),)
    return (
        framing_header(1)
        + HostReport(
            host_id=_SERVICE,
            host_name="bench",
            kind="service",
            incarnation="one",
            sequence=now_ms,
            received_at_ms=now_ms,
            goodbye=False,
            sources=sources,
        ).encode()
    )


_SERVICE: Final = "5" * 32


@dataclasses.dataclass
class RecordBlock:
    """Records in the order of delivery."""

    type_index: npt.NDArray[np.int64]
    time_ms: npt.NDArray[np.int64]
    keys: Bytes
    values: Bytes


def blocks(
    plan: TrafficPlan,
    schema_ids: dict[str, int],
    delivered: Delivered,
    *,
    ranges: int = _BLOCK_RANGES,
) -> Iterator[RecordBlock]:
    """Yield the records of the plan in blocks and add their counts to `delivered`.

    Args:
        plan: Events to deliver.
        schema_ids: Schema ID by event type.
        delivered: Counts to update.
        ranges: Number of ranges in a block; fewer for large events.
    """
    rng, ranges = (
        np.random.default_rng(plan.seed),
        max(1, min(ranges, _BLOCK_RANGES * 100 // (100 + plan.payload))),
    )
    for first in range(0, plan.ranges, ranges):
        numbers = np.arange(first, min(first + ranges, plan.ranges))
        yield _block(plan, numbers, schema_ids, delivered, rng)


def _block(
    plan: TrafficPlan,
    numbers: npt.NDArray[np.int64],
    schema_ids: dict[str, int],
    delivered: Delivered,
    rng: np.random.Generator,
) -> RecordBlock:
    rows = len(numbers) * RANGE_EVENTS
    of_range = np.repeat(numbers, RANGE_EVENTS)
    sequence = of_range * RANGE_EVENTS + np.tile(np.arange(RANGE_EVENTS), len(numbers))
    groups = max(1, len(plan.types) // TYPES_IN_RANGE)
    in_group = min(len(plan.types), TYPES_IN_RANGE)
    type_index = (of_range % groups) * in_group + sequence % in_group
    time_ms = _times(plan, sequence, of_range)
    hour_index = (time_ms // 1000 - plan.first_hour.start_s) // plan.first_hour.length_s
    ids = _event_ids(time_ms, rng)
    range_ids = rng.integers(0, 256, (len(numbers), 8), np.uint8)
    ids_of_schema = np.array([schema_ids[t] for t in plan.types])[type_index]
    values = _values(sequence, of_range, time_ms, ids, ids_of_schema)
    if plan.payload:
        values = np.concatenate([values, _texts(len(values), plan.payload, rng)], axis=1)
    again = np.flatnonzero(rng.random(len(numbers)) < plan.duplicated)
    tails = ids[:, 8:].copy().view(">u8").ravel().astype(np.uint64)
    np.add.at(delivered.distinct, (type_index, hour_index), 1)
    np.add.at(delivered.low64_sums, (type_index, hour_index), tails)
    order, sent_ranges = _with_repeats(len(numbers), again, range_ids, rng)
    pick = (order[:, None] * RANGE_EVENTS + np.arange(RANGE_EVENTS)).ravel()
    np.add.at(delivered.records, (type_index[pick], hour_index[pick]), 1)
    delivered.value_bytes += len(pick) * values.shape[1]
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.shape[1]
    hashes = datum_hashes(
        tails, ids_of_schema.astype(np.int32), offsets, memoryview(values.tobytes()), FRAMING_SIZE
    )
    delivered.audit += _audit(plan, order, sent_ranges, type_index, hour_index, tails, hashes)
    keys = np.concatenate([ids[pick], np.repeat(sent_ranges, RANGE_EVENTS, axis=0)], axis=1)
    assert len(values) == rows
    return RecordBlock(type_index[pick], time_ms[pick], keys, values[pick])


def _times(
    plan: TrafficPlan, sequence: npt.NDArray[np.int64], of_range: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    # Spread evenly over the hours. The event times of a late range are an hour earlier, so that it
    # arrives an hour late.
    length_ms = plan.first_hour.length_s * 1000
    start = plan.first_hour.start_s * 1000
    times = start + sequence * (plan.hours * length_ms) // plan.events
    every = round(1 / plan.late) if plan.late else 0
    late = (of_range % every == every // 2) if every else np.zeros(len(sequence), bool)
    result: npt.NDArray[np.int64] = np.where(
        late & (times - length_ms >= start), times - length_ms, times
    )
    return result


def _event_ids(time_ms: npt.NDArray[np.int64], rng: np.random.Generator) -> Bytes:
    # The layout of `hourmark.records.event_id` with random bits in place of the digest.
    ids = rng.integers(0, 256, (len(time_ms), 16), np.uint8)
    ids[:, :6] = time_ms.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 2:]
    ids[:, 6] = ids[:, 6] & 0x0F | 0x80
    ids[:, 8] = ids[:, 8] & 0x3F | 0x80
    return ids


def _values(
    sequence: npt.NDArray[np.int64],
    of_range: npt.NDArray[np.int64],
    time_ms: npt.NDArray[np.int64],
    ids: Bytes,
    schema_ids: npt.NDArray[np.int64],
) -> Bytes:
    hosts = of_range % HOSTS_COUNT
    names = np.array([list(b"\x0cweb-%02d" % h) for h in range(HOSTS_COUNT)], np.uint8)
    files = np.array(
        [
            list(b"\x40" + b"%032x" % (h * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)))
            for h in range(HOSTS_COUNT)
        ],
        np.uint8,
    )
    rows = len(sequence)
    parts = [
        np.zeros((rows, 1), np.uint8),
        schema_ids.astype(">i4").view(np.uint8).reshape(-1, 4),
        ids,
        _long(time_ms, 6),
        names[hosts],
        np.broadcast_to(
            np.frombuffer(bytes([2 * len(_PATH)]) + _PATH, np.uint8), (rows, 1 + len(_PATH))
        ),
        np.full((rows, 1), 2, np.uint8),  # the union's second branch: a file
        files[hosts],
        np.zeros((rows, 1), np.uint8),  # generation 0
        _long(_FIRST_POSITION + (sequence // HOSTS_COUNT * 100) % ((1 << 27) - _FIRST_POSITION), 4),
        _long(_FIRST_POSITION + sequence % 1_000_000, 4),
    ]
    return np.concatenate(parts, axis=1)


def _texts(rows: int, size: int, rng: np.random.Generator) -> Bytes:
    # Avro strings of 64 letters, which compress to three quarters, like ids and digests in logs.
    letters = np.frombuffer(string.ascii_letters.encode() + b"0123456789-_", np.uint8)
    length = io.BytesIO()
    fastavro.schemaless_writer(length, "long", size)
    head = np.broadcast_to(
        np.frombuffer(length.getvalue(), np.uint8), (rows, len(length.getvalue()))
    )
    return np.concatenate([head, letters[rng.integers(0, 64, (rows, size), np.uint8)]], axis=1)


def _long(values: npt.NDArray[np.int64], size: int) -> Bytes:
    # Avro longs whose encoding has exactly `size` bytes.
    zigzag = values << 1
    assert (zigzag >> 7 * (size - 1) > 0).all() and (zigzag >> 7 * size == 0).all(), (
        "not all of this length"
    )
    digits = (zigzag[:, None] >> (7 * np.arange(size))) & 0x7F
    digits[:, :-1] |= 0x80
    return digits.astype(np.uint8)


def _with_repeats(
    count: int, again: npt.NDArray[np.int64], range_ids: Bytes, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], Bytes]:
    """Return the order of delivery, as indexes of ranges, and the range id of each delivery.

    Half of the repeated ranges have a new range id.
    """
    places = np.concatenate([np.arange(count), np.minimum(again + 20, count)])
    order = np.concatenate([np.arange(count), again])
    sent = np.concatenate([range_ids, range_ids[again]])
    recut = count + np.flatnonzero(rng.random(len(again)) < 0.5)
    sent[recut] = rng.integers(0, 256, (len(recut), 8), np.uint8)
    arranged = np.argsort(places, kind="stable")
    return order[arranged], sent[arranged]


def _audit(
    plan: TrafficPlan,
    order: npt.NDArray[np.int64],
    sent_ranges: Bytes,
    type_index: npt.NDArray[np.int64],
    hour_index: npt.NDArray[np.int64],
    tails: npt.NDArray[np.uint64],
    hashes: npt.NDArray[np.uint64],
) -> list[tuple[bytes, bytes]]:
    # One audit record for each delivery, in order.
    promised: dict[int, tuple[Promise, ...]] = {}
    records = []
    for delivery, index in enumerate(order.tolist()):
        rows = slice(index * RANGE_EVENTS, (index + 1) * RANGE_EVENTS)
        if index not in promised:
            promised[index] = _promises(
                plan, type_index[rows], hour_index[rows], tails[rows], hashes[rows]
            )
        range_id = RangeId(sent_ranges[delivery].tobytes())
        record = AuditRecord(
            range_id=range_id,
            kind="range",
            host_id="a" * 32,
            host_name="web",
            file_id="f" * 32,
            generation=0,
            start=index,
            end=index + 1,
            observed_at_ms=0,
            rules="1-0",
            source="app",
            path=_PATH.decode(),
            lines=RANGE_EVENTS,
            promised=promised[index],
            blanks=0,
        )
        records.append((bytes(range_id), framing_header(1) + record.encode()))
    return records


def _promises(
    plan: TrafficPlan,
    types: npt.NDArray[np.int64],
    hours: npt.NDArray[np.int64],
    tails: npt.NDArray[np.uint64],
    hashes: npt.NDArray[np.uint64],
) -> tuple[Promise, ...]:
    cell = types * plan.hours + hours
    cells, inverse, counts = np.unique(cell, return_inverse=True, return_counts=True)
    sums, checksums = np.zeros(len(cells), np.uint64), np.zeros(len(cells), np.uint64)
    np.add.at(sums, inverse, tails)
    np.add.at(checksums, inverse, hashes)
    starts = plan.first_hour.start_s + (cells % plan.hours) * plan.first_hour.length_s
    found = zip(
        (cells // plan.hours).tolist(),
        starts.tolist(),
        counts.tolist(),
        sums.tolist(),
        checksums.tolist(),
        strict=True,
    )
    return tuple(sorted(Promise(plan.types[t], *rest) for t, *rest in found))


def _send(producer: Producer, topics: Sequence[str], block: RecordBlock, *, now: bool) -> None:
    keys, values = block.keys.tobytes(), block.values.tobytes()
    key_size, size = block.keys.shape[1], block.values.shape[1]
    produce = producer.produce
    for n, (index, time_ms) in enumerate(
        zip(block.type_index.tolist(), block.time_ms.tolist(), strict=True)
    ):
        key, value = keys[n * key_size : (n + 1) * key_size], values[n * size : (n + 1) * size]
        while True:
            try:
                produce(topics[index], key=key, value=value, timestamp=0 if now else time_ms)
                break
            except BufferError:
                producer.poll(0.1)
        if not n % 1000:
            producer.poll(0)


def check_sample(plan: TrafficPlan, schema_ids: dict[str, int]) -> None:
    """Check that Hourmark's own code reads sample records: keys, framing, Avro, ids and hours.

    Raises:
        AssertionError: A record differs from what was generated.
    """
    delivered = empty_delivery(plan)
    block = next(blocks(plan, schema_ids, delivered))
    for n in range(0, len(block.keys), 997):
        event_id, _ = RecordKey.decode(block.keys[n].tobytes())
        schema_id, datum = unframe(block.values[n].tobytes())
        name = plan.types[int(block.type_index[n])]
        schema = fastavro.parse_schema(benchmark_type(name, payload=plan.payload).schema())
        row: Any = fastavro.schemaless_reader(io.BytesIO(datum), schema, None)
        assert schema_id == schema_ids[name]
        assert (
            EventId(row["event_id"].bytes if hasattr(row["event_id"], "bytes") else row["event_id"])
            == event_id
        )
        assert (
            event_id.time_ms == int(block.time_ms[n]) == round(row["event_time"].timestamp() * 1000)
        )
    records = [AuditRecord.decode(unframe(value)[1]) for _, value in delivered.audit[:50]]
    assert all(
        record.range_id == key for record, (key, _) in zip(records, delivered.audit, strict=False)
    )
    assert all(p.checksum is not None for record in records for p in record.promised)
