"""Spans read from a real broker: every committed record once and in order, whatever lies between; a
gap is an error.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from hourmark.avro.framing import framing_header
from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster, Partition, client_settings
from hourmark.records.event_id import LineIds
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark_etl.errors import DataLoss
from hourmark_etl.model import FIRST_SITE, OffsetSpan
from hourmark_etl.staging.pieces import StagePlan
from hourmark_etl.staging.plan import ReadSpan
from hourmark_etl.staging.read import FETCH_BYTES, RecordChunk, SpanReader
from hourmark_etl.staging.stage import stage_chunks
from hourmark_etl.storage import LocalDisk

pytestmark = [pytest.mark.stack, pytest.mark.timeout(120)]

IDS = LineIds("a" * 32, "b" * 32, 0)


@pytest.fixture(scope="module")
def central(config: Config) -> Cluster:
    return Cluster(config.kafka.central_cluster, "central")


@pytest.fixture
def topic(central: Cluster) -> Iterator[str]:
    name = f"reading-{uuid.uuid4().hex[:8]}"
    central.admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    yield name
    central.admin.delete_topics([name])[name].result(30)


@pytest.fixture
def reader(config: Config) -> Iterator[SpanReader]:
    with SpanReader(config.kafka.central_cluster, config.kafka.max_message_bytes) as made:
        yield made


def produce(
    central: Cluster,
    topic: str,
    records: Sequence[tuple[int, bytes, bytes]],
    *,
    commit: bool | None = None,
    **settings: Any,
) -> None:
    """Append (partition, key, value); in a transaction that is committed or aborted, unless
    `commit` is None.
    """
    # Records stay in order when a request is repeated, as transactions do by themselves.
    more = (
        {"enable_idempotence": True} if commit is None else {"transactional_id": uuid.uuid4().hex}
    )
    producer = Producer(client_settings(central.settings, **more, **settings))
    if commit is not None:
        producer.init_transactions(30)
        producer.begin_transaction()
    for partition, key, value in records:
        producer.produce(topic, key=key, value=value, partition=partition)
    assert producer.flush(30) == 0
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(30)


def spans(central: Cluster, topic: str, bytes_max: int = 1 << 30) -> list[ReadSpan]:
    """From the begin of each partition to its committed end."""
    ends = central.ends([Partition(topic, 0), Partition(topic, 1)])
    return [
        ReadSpan(
            OffsetSpan(topic=topic, topic_id="id", partition=p.partition, start=0, end=end),
            bytes_max,
        )
        for p, end in ends.items()
    ]


def values(pieces: Sequence[RecordChunk], partition: int) -> list[bytes]:
    found = []
    for piece in pieces:
        rows = zip(
            piece.table.column("partition").to_pylist(),
            piece.table.column("value").to_pylist(),
            strict=True,
        )
        found += [value for number, value in rows if number == partition]
    return found


def test_gaps_of_transactions_are_passed_and_aborted_records_are_not_read(
    central: Cluster, topic: str, reader: SpanReader
) -> None:
    produce(central, topic, [(0, b"k", b"one"), (1, b"k", b"uno")], commit=True)
    produce(central, topic, [(0, b"k", b"never"), (1, b"k", b"mai")], commit=False)
    produce(central, topic, [(0, b"k", b"two")])
    wanted = spans(central, topic)
    assert {s.span.partition: s.span.end for s in wanted} == {0: 5, 1: 4}
    pieces = list(reader.read(wanted))
    assert values(pieces, 0) == [b"one", b"two"]
    assert values(pieces, 1) == [b"uno"]
    read = {(s.topic, s.partition, s.start, s.end) for piece in pieces for s in piece.spans}
    assert read == {(topic, 0, 0, 5), (topic, 1, 0, 4)}
    produce(central, topic, [(0, b"k", b"later")])  # past the planned end
    assert values(list(reader.read(wanted)), 0) == [b"one", b"two"]


def test_a_long_span_comes_in_pieces_that_leave_no_gap(
    central: Cluster, topic: str, reader: SpanReader
) -> None:
    sent = [b"%06d" % n + b"x" * 100 for n in range(20_000)]
    produce(central, topic, [(n % 2, b"k", value) for n, value in enumerate(sent)])
    pieces = list(reader.read(spans(central, topic), chunk_bytes=300_000))
    assert len(pieces) > 3
    for number in (0, 1):
        assert values(pieces, number) == sent[number::2]
        own = [s for piece in pieces for s in piece.spans if s.partition == number]
        assert [s.start for s in own] == [0, *(s.end for s in own[:-1])] and own[-1].end == 10_000


def test_records_larger_than_a_fetch_come_between_small_ones(
    central: Cluster, topic: str, reader: SpanReader, config: Config
) -> None:
    large = [
        bytes([n]) * size
        for n, size in enumerate((FETCH_BYTES - 1, FETCH_BYTES, 3 * FETCH_BYTES, 7 * FETCH_BYTES))
    ]
    sent = [value for each in large for value in (b"small", each)]
    produce(
        central,
        topic,
        [(0, b"k", value) for value in sent],
        message_max_bytes=config.kafka.max_message_bytes,
    )
    assert values(list(reader.read(spans(central, topic))), 0) == sent


def test_a_span_ends_where_its_bytes_are_used_up(
    central: Cluster, topic: str, reader: SpanReader
) -> None:
    produce(central, topic, [(0, b"k", b"%06d" % n) for n in range(20_000)])
    (piece,) = reader.read(spans(central, topic, bytes_max=1_000))
    (span,) = piece.spans
    assert 0 < span.end < 20_000
    assert values([piece], 0) == [b"%06d" % n for n in range(span.end)]


def test_what_retention_has_taken_is_loss_that_names_the_place(
    central: Cluster, topic: str, reader: SpanReader
) -> None:
    produce(central, topic, [(0, b"k", b"gone")] * 5)
    wanted = spans(central, topic)
    for deleted in central.admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        deleted.result(30)
    with pytest.raises(
        DataLoss,
        match=rf"topic {topic} partition 0: offset 0 must be staged next.* log has offsets 3 to 5",
    ):
        list(reader.read(wanted))


def event(n: int) -> tuple[int, bytes, bytes]:
    return (
        0,
        RecordKey(IDS.make(1_800_000_000_000 + n, n, b"line"), RangeId(b"12345678")).encode(),
        framing_header(1) + b"datum%d" % n,
    )


def test_a_record_that_cannot_be_staged_is_set_aside_on_a_topic_of_events_alone(
    central: Cluster, topic: str, reader: SpanReader, tmp_path: Path
) -> None:
    other = [(1, key, value) for _, key, value in map(event, range(100, 110))]
    produce(central, topic, [event(0), event(1), (0, b"short", b"poison"), event(3), *other])
    storage = LocalDisk(tmp_path)
    plan = StagePlan(
        folder="_staging/one",
        bucket_seconds=3600,
        types={topic: "click"},
        audits={"audit": FIRST_SITE},
        hosts={"hosts"},
    )
    (answer,) = stage_chunks(reader.read(spans(central, topic)), plan, storage, [])
    assert {s.partition: (s.start, s.end) for s in answer.spans} == {0: (0, 4), 1: (0, 10)}
    assert sum(g.rows for g in answer.piece.groups) == 13
    (of,) = answer.piece.set_aside
    assert (of.topic, of.topic_id, of.partition, of.offsets) == (topic, "id", 0, (2,))
    assert pickle.loads(pickle.dumps(answer)) == answer
    control = StagePlan(
        folder="_staging/two",
        bucket_seconds=3600,
        types={},
        audits={"audit": FIRST_SITE},
        hosts={topic},
    )
    (waits,) = stage_chunks(reader.read(spans(central, topic)), control, storage, [])
    assert (waits.spans, {(u.topic, u.offset) for u in waits.unread}) == ((), {(topic, 0)})
