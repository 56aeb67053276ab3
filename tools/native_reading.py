"""Random test of the native Kafka reader with librdkafka's mock cluster.

Records are read in columns and as messages, in batches of random sizes; both results must be equal.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from confluent_kafka import Producer

from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import Partition, supports_native_client
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.packed_reader import NO_KEY, NO_VALUE, PackedReader, PackedRecords
from hourmark.kafka.partitions_reader import PartitionsReader

Record = tuple[int, bytes | None, bytes | None]  # offset, key, value
_RECORDS: Final = 600
_SIZES: Final = (0, 1, 24, 100, 5000)


def rows_of(records: PackedRecords) -> list[Record]:
    """Return the records of packed columns as separate objects."""
    count = len(records)
    key_ends, value_ends = (
        struct.unpack(f"={count + 1}i", ends) for ends in (records.key_ends, records.value_ends)
    )
    found: list[Record] = []
    for n, offset in enumerate(records.offsets):
        nulls = records.nulls[n] if records.nulls else 0
        key, value = (
            records.keys[key_ends[n] : key_ends[n + 1]],
            records.values[value_ends[n] : value_ends[n + 1]],
        )
        found.append((offset, None if nulls & NO_KEY else key, None if nulls & NO_VALUE else value))
    return found


def read_at_random(module: ModuleType, seed: int) -> int:
    """Write and read random records, compare both ways of reading, and return their number.

    Args:
        module: Native module that reads records in columns.
        seed: Seed of the random records.

    Raises:
        AssertionError: A column differs from the messages.
    """
    rng = random.Random(seed)
    assert supports_native_client(module)
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    cluster = KafkaCluster(bootstrap=f"{broker.host}:{broker.port}")
    counts = [0, 0, 0]
    for _ in range(_RECORDS):
        partition = rng.choices(range(len(counts)), (9, 3, 1))[0]
        producer.produce("t", key=_some(rng), value=_some(rng), partition=partition)
        counts[partition] += 1
        producer.poll(0)
    assert producer.flush(30) == 0
    compared = 0
    with (
        contextlib.closing(
            PackedReader(module, cluster, "edge", batch=rng.choice((1, 7, 100, 2000)))
        ) as packed,
        contextlib.closing(CommittedReader(cluster, "edge")) as messages,
    ):
        for _ in range(4):
            spans = {
                Partition("t", number): _span(rng, count) for number, count in enumerate(counts)
            }
            if rng.random() < 0.3:
                next(packed.read(spans), None)  # and then no more of it
            in_columns, as_messages = _read(packed, spans), _read(messages, spans)
            assert in_columns == as_messages, f"seed {seed}: {spans}"
            compared += sum(map(len, in_columns.values()))
    return compared


def _some(rng: random.Random) -> bytes | None:
    return None if rng.random() < 0.05 else rng.randbytes(rng.choice(_SIZES))


def _span(rng: random.Random, count: int) -> tuple[int, int]:
    one, other = rng.randint(0, count), rng.randint(0, count)
    return min(one, other), max(one, other)


def _read(
    reader: PartitionsReader[Any], spans: Mapping[Partition, tuple[int, int]]
) -> dict[Partition, list[Record]]:
    found: dict[Partition, list[Record]] = {partition: [] for partition in spans}
    for run in (run for runs in reader.read(spans) for run in runs):
        found[run.partition] += _rows(run.records)
    return found


def _rows(records: Any) -> Iterator[Record]:
    return (
        iter(rows_of(records))
        if isinstance(records, PackedRecords)
        else ((m.offset(), m.key(), m.value()) for m in records)
    )
