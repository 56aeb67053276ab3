"""The one reader, on librdkafka's own broker for tests: exactly what was asked for, whatever lies behind; trouble has a name."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer

from hourmark.committed_reader import CommittedReader, OutOfRange
from hourmark.config_groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import Partition

RECORDS = 3_000
ONE, TWO = Partition("click", 0), Partition("click", 1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Two partitions of RECORDS records; each value is its offset."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 3})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    for offset in range(RECORDS):
        for partition in (ONE, TWO):
            producer.produce(partition.topic, key=b"k", value=b"%d" % offset, partition=partition.partition)
    assert producer.flush(30) == 0
    yield KafkaCluster(bootstrap=f"{broker.host}:{broker.port}")


@pytest.fixture
def reader(cluster: KafkaCluster) -> Iterator[CommittedReader]:
    made = CommittedReader(cluster, "edge", batch=500, stall_s=5)
    yield made
    made.close()


def read(reader: CommittedReader, spans: Mapping[Partition, tuple[int, int]]) -> dict[Partition, list[int]]:
    """The offsets read; every run continues where the one before ended, and ends behind its last record."""
    found: dict[Partition, list[int]] = {p: [] for p in spans}
    reached = {p: start for p, (start, _) in spans.items()}
    for runs in reader.read(spans):
        for run in runs:
            offsets = [int(record.value() or b"-1") for record in run.records]
            assert all(reached[run.partition] <= o < run.next_offset for o in offsets)
            reached[run.partition] = run.next_offset
            found[run.partition] += offsets
    assert reached == {p: max(start, end) for p, (start, end) in spans.items()}
    return found


def test_each_partition_is_read_from_its_start_up_to_its_end_and_not_further(reader: CommittedReader) -> None:
    wanted = {ONE: (10, 1_234), TWO: (2_000, RECORDS)}
    assert read(reader, wanted) == {p: list(range(*span)) for p, span in wanted.items()}
    again = {ONE: (1_234, 1_235), TWO: (0, 1)}  # the same reader, from other places
    assert read(reader, again) == {ONE: [1_234], TWO: [0]}


def test_a_span_of_nothing_has_no_records_and_asks_nobody() -> None:
    reader = CommittedReader(KafkaCluster(bootstrap="127.0.0.1:1"), "edge", stall_s=0.1)
    assert read(reader, {ONE: (7, 7)}) == {ONE: []}
    assert read(reader, {}) == {}
    reader.close()


def test_a_partition_that_is_left_gives_no_more_and_others_go_on(reader: CommittedReader) -> None:
    found: dict[Partition, list[int]] = {ONE: [], TWO: []}
    for runs in reader.read({ONE: (0, RECORDS), TWO: (0, RECORDS)}):
        assert not (found[ONE] and any(run.partition == ONE for run in runs))
        for run in runs:
            found[run.partition] += [int(record.value() or b"-1") for record in run.records]
        if found[ONE]:
            reader.leave([ONE])
    assert found[TWO] == list(range(RECORDS))
    assert found[ONE] == list(range(len(found[ONE]))) and len(found[ONE]) < RECORDS


def test_a_reader_that_is_closed_in_the_middle_leaves_quietly(cluster: KafkaCluster) -> None:
    reader = CommittedReader(cluster, "edge", batch=10)
    batches = reader.read({ONE: (0, RECORDS)})
    assert next(batches)[0].records
    reader.close()
    batches.close()


def test_an_offset_that_the_log_does_not_have_is_out_of_range_and_named(reader: CommittedReader) -> None:
    with pytest.raises(OutOfRange, match=r"click-1 of the edge cluster has no offset 5000") as caught:
        read(reader, {ONE: (0, 5), TWO: (5_000, 5_001)})
    assert (caught.value.partition, caught.value.offset) == (TWO, 5_000)


def test_a_log_that_ends_before_the_span_does_is_unavailable_and_says_how_far_it_came(cluster: KafkaCluster) -> None:
    reader = CommittedReader(cluster, "edge", stall_s=0.3)
    with pytest.raises(Unavailable, match=rf"topic click partition 0 of the edge .* after offset {RECORDS} \(of {RECORDS + 1}\)"):
        read(reader, {ONE: (RECORDS - 5, RECORDS + 1)})
    reader.close()


def test_a_silent_cluster_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = CommittedReader(KafkaCluster(bootstrap=f"127.0.0.1:{server.getsockname()[1]}"), "edge", stall_s=0.3)
        with pytest.raises(Unavailable, match=r"click partition 0 of the edge cluster: nothing came after offset 0 \(of 9\)"):
            read(reader, {ONE: (0, 9)})
        reader.close()
