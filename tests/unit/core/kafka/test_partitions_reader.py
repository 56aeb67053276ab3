"""The one reader, in both its forms, on librdkafka's own broker for tests: exactly what was asked
for; trouble has a name.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from tests.support.clock import FakeClock
from tools.native_reading import read_at_random, rows_of

import hourmark_native as native
from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import committed_reader, partitions_reader
from hourmark.kafka.clients import Partition, close_within, supports_native_client
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.packed_reader import PackedReader, PackedRecords
from hourmark.kafka.partitions_reader import OffsetOutOfRange, PartitionEvent, PartitionsReader

Reader = PartitionsReader[Any]
Make = Callable[..., Reader]

MODULE: Any = native.MODULE
RECORDS = 3_000
ONE, TWO = Partition("click", 0), Partition("click", 1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Two partitions of RECORDS records; each value is its offset."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 3})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    for offset in range(RECORDS):
        for partition in (ONE, TWO):
            producer.produce(
                partition.topic, key=b"k", value=b"%d" % offset, partition=partition.partition
            )
    assert producer.flush(30) == 0
    yield KafkaCluster(bootstrap=f"{broker.host}:{broker.port}")


def packed(*arguments: Any, **settings: Any) -> PackedReader:
    assert native.MODULE is not None and supports_native_client(native.MODULE)
    return PackedReader(native.MODULE, *arguments, **settings)


@pytest.fixture(params=["messages", "packed"])
def make(request: pytest.FixtureRequest) -> Make:
    if request.param == "packed" and native.MODULE is None:
        pytest.skip(native.WHY_NOT)
    return packed if request.param == "packed" else CommittedReader


@pytest.fixture
def reader(make: Make, cluster: KafkaCluster) -> Iterator[Reader]:
    made = make(cluster, "edge", batch=500, stall_s=5)
    yield made
    made.close()


def values(records: Any) -> list[int]:
    found = (
        [v for _, _, v in rows_of(records)]
        if isinstance(records, PackedRecords)
        else [r.value() for r in records]
    )
    return [int(value or b"-1") for value in found]


def read(reader: Reader, spans: Mapping[Partition, tuple[int, int]]) -> dict[Partition, list[int]]:
    """The offsets read; every run continues where the one before ended, and ends behind its last
    record.
    """
    found: dict[Partition, list[int]] = {p: [] for p in spans}
    reached = {p: start for p, (start, _) in spans.items()}
    for runs in reader.read(spans):
        for run in runs:
            offsets = values(run.records)
            assert all(reached[run.partition] <= o < run.next_offset for o in offsets)
            reached[run.partition] = run.next_offset
            found[run.partition] += offsets
    assert reached == {p: max(start, end) for p, (start, end) in spans.items()}
    return found


def test_each_partition_is_read_from_its_start_up_to_its_end_and_not_further(
    reader: Reader,
) -> None:
    wanted = {ONE: (10, 1_234), TWO: (2_000, RECORDS)}
    assert read(reader, wanted) == {p: list(range(*span)) for p, span in wanted.items()}
    again = {ONE: (1_234, 1_235), TWO: (0, 1)}  # the same reader, from other places
    assert read(reader, again) == {ONE: [1_234], TWO: [0]}


def test_a_span_of_nothing_has_no_records_and_asks_nobody(make: Make) -> None:
    reader = make(KafkaCluster(bootstrap="127.0.0.1:1"), "edge", stall_s=0.1)
    assert read(reader, {ONE: (7, 7)}) == {ONE: []}
    assert read(reader, {}) == {}
    reader.close()


def test_a_partition_that_is_left_gives_no_more_and_others_go_on(reader: Reader) -> None:
    found: dict[Partition, list[int]] = {ONE: [], TWO: []}
    for runs in reader.read({ONE: (0, RECORDS), TWO: (0, RECORDS)}):
        assert not (found[ONE] and any(run.partition == ONE for run in runs))
        for run in runs:
            found[run.partition] += values(run.records)
        if found[ONE]:
            reader.leave([ONE])
    assert found[TWO] == list(range(RECORDS))
    assert found[ONE] == list(range(len(found[ONE]))) and len(found[ONE]) < RECORDS


def test_a_reader_that_is_closed_in_the_middle_leaves_quietly(
    make: Make, cluster: KafkaCluster
) -> None:
    reader = make(cluster, "edge", batch=10)
    batches = reader.read({ONE: (0, RECORDS)})
    assert next(batches)[0].records
    reader.close()
    batches.close()


def test_an_offset_that_the_log_does_not_have_is_out_of_range_and_named(reader: Reader) -> None:
    with pytest.raises(
        OffsetOutOfRange, match=r"click-1 of the edge cluster has no offset 5000"
    ) as caught:
        read(reader, {ONE: (0, 5), TWO: (5_000, 5_001)})
    assert (caught.value.partition, caught.value.offset) == (TWO, 5_000)


def test_a_log_that_ends_before_the_span_does_is_unavailable_and_says_how_far_it_came(
    make: Make, cluster: KafkaCluster
) -> None:
    reader = make(cluster, "edge", stall_s=0.3)
    with pytest.raises(
        Unavailable,
        match=(
            rf"topic click partition 0 of the edge .* after offset {RECORDS} \(of "
            rf"{RECORDS + 1}\)"
        ),
    ):
        read(reader, {ONE: (RECORDS - 5, RECORDS + 1)})
    reader.close()


def test_a_client_that_does_not_end_keeps_nobody_waiting(
    make: Make,
    cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ever, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(partitions_reader, "close_within", partial(close_within, seconds=0.05))

    class Client(Consumer):
        def close(self) -> None:
            ever.wait(30)
            super().close()
            ended.set()

    class Module:
        def __getattr__(self, name: str) -> Any:
            return getattr(MODULE, name)

        def close(self, client: Any) -> None:
            ever.wait(30)
            MODULE.close(client)
            ended.set()

    monkeypatch.setattr(committed_reader, "Consumer", Client)
    monkeypatch.setattr(native, "MODULE", Module())
    reader = make(cluster, "edge")
    reading = reader.read({ONE: (0, RECORDS)})
    next(reading)
    reader.close()
    reader.close()
    reading.close()
    assert [record.getMessage() for record in caplog.records] == [
        "a reader of the edge cluster did not stop within 0 s and is abandoned; check whether a "
        "broker is down"
    ]
    ever.set()
    assert ended.wait(30)


class Scripted(CommittedReader):
    """Of which each look brings one record, or nothing."""

    def __init__(self, looks: list[int | None]) -> None:
        super().__init__(
            KafkaCluster(bootstrap="127.0.0.1:1", properties={"log_level": "0"}),
            "edge",
            stall_s=0.05,
        )
        self._looks = looks

    def _poll(
        self, count: int, wait_s: float
    ) -> tuple[list[tuple[Partition, int | None, list[Any]]], list[PartitionEvent]]:
        offset = self._looks.pop(0)
        return ([] if offset is None else [(ONE, 0, [SimpleNamespace(offset=lambda: offset)])]), []

    def _high_watermark(self, partition: Partition) -> int:
        return RECORDS


def test_whoever_takes_long_with_records_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(partitions_reader, "time", SimpleNamespace(monotonic=clock.monotonic_s))
    with contextlib.closing(Scripted([0, None, 1])) as reader:
        reading = reader.read({ONE: (0, 2)})
        next(reading)
        clock.sleep(0.2)
        assert [run.next_offset for run in next(reading)] == [2]


def test_a_silent_cluster_is_unavailable(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = make(
            KafkaCluster(bootstrap=f"127.0.0.1:{server.getsockname()[1]}"), "edge", stall_s=0.3
        )
        with pytest.raises(
            Unavailable,
            match=r"click partition 0 of the edge cluster: no record was received after offset 0 \(of 9\)",
        ):
            read(reader, {ONE: (0, 9)})
        reader.close()


@pytest.fixture(scope="module")
def odd(cluster: KafkaCluster) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a topic holds: records without key, without value, without both, of no bytes, and a
    large one.
    """
    rows: list[tuple[bytes | None, bytes | None]] = [
        (b"k", b"v"),
        (None, b"v"),
        (b"k", None),
        (None, None),
        (b"", b""),
        (b"k" * 300, b"v" * 900_000),
        (b"\0\xff", b"\0"),
    ]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 3})
    for key, value in rows:
        producer.produce("odd", key=key, value=value, partition=0)
    assert producer.flush(30) == 0
    return [(offset, *row) for offset, row in enumerate(rows)]


def test_packed_records_are_the_messages(
    cluster: KafkaCluster, odd: list[tuple[int, bytes | None, bytes | None]]
) -> None:
    if native.MODULE is None:
        pytest.skip(native.WHY_NOT)
    span = {Partition("odd", 0): (0, len(odd))}
    for batch in (1, 3, 500):
        one, other = (
            packed(cluster, "edge", batch=batch),
            CommittedReader(cluster, "edge", batch=batch),
        )
        rows = [row for runs in one.read(span) for run in runs for row in rows_of(run.records)]
        assert (
            rows
            == [
                (m.offset(), m.key(), m.value())
                for runs in other.read(span)
                for run in runs
                for m in run.records
            ]
            == odd
        )
        one.close()
        other.close()


def test_what_lies_past_a_cut_is_in_no_column() -> None:
    whole = PackedRecords(
        [4, 6, 7],
        struct.pack("=4i", 0, 1, 3, 3),
        b"abb",
        struct.pack("=4i", 0, 2, 2, 5),
        b"AACCC",
        b"\0\2\1",
    )
    assert rows_of(whole.first(2)) == rows_of(whole)[:2] == [(4, b"a", b"AA"), (6, b"bb", None)]
    assert rows_of(whole.first(0)) == rows_of(PackedRecords()) == []


def test_a_setting_that_librdkafka_refuses_is_named(make: Make, cluster: KafkaCluster) -> None:
    with pytest.raises(KafkaException, match=r"no\.such\.setting"):
        make(cluster, "edge", no_such_setting=1)


def test_a_reader_that_was_closed_reads_no_more(cluster: KafkaCluster) -> None:
    if native.MODULE is None:
        pytest.skip(native.WHY_NOT)
    reader = packed(cluster, "edge")
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="was closed"):
        read(reader, {ONE: (0, 9)})


@pytest.mark.parametrize("seed", range(5))
def test_what_is_read_at_random_is_the_same_in_both_forms(seed: int) -> None:
    if native.MODULE is None:
        pytest.skip(native.WHY_NOT)
    assert read_at_random(native.MODULE, seed) > 0
