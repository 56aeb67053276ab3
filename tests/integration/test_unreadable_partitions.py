"""A partition of a real broker cannot be read: it is named, all others are staged, and an operator
can skip what is damaged.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.plain_broker import PlainBroker, Record
from tests.support.records import audit_record
from tests.support.rules import put_rules
from tests.support.waiting import wait_for

from hourmark.avro.framing import framing_header
from hourmark.config.groups import EtlSettings, KafkaSettings, StorageSettings
from hourmark.config.loading import Config
from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, CONTROL, events_topic
from hourmark.records.event_id import LineIds
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark.rules.event_types import EventType, Source
from hourmark_etl.ledger.batches import commit_batch, insert_new_positions, positions
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.partitions.offset_gaps import open_gaps
from hourmark_etl.ledger.partitions.read_errors import PAUSE_MS, ReadError, read_errors
from hourmark_etl.model import FIRST_SITE, OffsetSpan, StagedBatch, StagingPosition
from hourmark_etl.staging.consumer import collect_read_errors
from hourmark_etl.staging.pieces import StagePlan
from hourmark_etl.staging.plan import ReadSpan
from hourmark_etl.staging.planner import Planner
from hourmark_etl.staging.stage import TaskResult, read_and_stage
from hourmark_etl.staging.unreadable import skip_unreadable
from hourmark_etl.storage import open_storage
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
IDS = LineIds("a" * 32, "b" * 32, 0)
BATCH, BATCHES = 10, 3
EVENTS = BATCH * BATCHES


@pytest.fixture(scope="module")
def broker(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainBroker]:
    with PlainBroker(tmp_path_factory.mktemp("broker"), stack.programs).running() as made:
        yield made


@pytest.fixture
def config(broker: PlainBroker, tmp_path: Path) -> Config:
    storage = StorageSettings(root=f"file://{tmp_path}/root")
    etl = EtlSettings(ledger=f"sqlite:///{tmp_path}/ledger.sqlite")
    return Config(kafka=KafkaSettings(edge=broker.settings), storage=storage, etl=etl)


def events(first: int) -> list[Record]:
    numbers = range(first, first + BATCH)
    keys = (
        RecordKey(IDS.make(1_800_000_000_000 + n, n, b"line"), RangeId(b"12345678")).encode()
        for n in numbers
    )
    return [
        (key, framing_header(1) + b"datum %03d" % n) for key, n in zip(keys, numbers, strict=True)
    ]


def topic_of_events(broker: PlainBroker, name: str) -> str:
    """With three batches."""
    topic = events_topic(f"{name}-{uuid.uuid4().hex[:8]}")
    broker.make_topic(topic)
    for n in range(BATCHES):
        broker.append(topic, events(n * BATCH))
    return topic


def staged(config: Config, *topics: str, start: int = 0, end: int = EVENTS) -> list[TaskResult]:
    """By one task."""
    plan = StagePlan(
        folder="_staging/one",
        bucket_seconds=3600,
        types={t: t.removeprefix("events.") for t in topics if t != AUDIT},
        audits={AUDIT: FIRST_SITE},
        hosts=frozenset(),
        ledger="a ledger",
    )
    spans = [
        ReadSpan(OffsetSpan(topic=t, topic_id="id", partition=0, start=start, end=end), 1 << 30)
        for t in topics
    ]
    return list(
        read_and_stage(
            spans,
            plan,
            open_storage(config.storage),
            config.kafka.central_cluster,
            config.kafka.max_message_bytes,
        )
    )


def test_one_damaged_batch_is_named_and_all_before_it_and_every_other_partition_is_staged(
    broker: PlainBroker, config: Config
) -> None:
    good, damaged = (topic_of_events(broker, name) for name in ("good", "damaged"))
    at = broker.log(damaged).read().index(b"datum 015")
    with broker.log(damaged).with_flipped_bit(at, 0):
        results = staged(config, good, damaged)
    rows = {g.event_type: g.rows for r in results for g in r.piece.groups}
    assert rows == {good.removeprefix("events."): EVENTS, damaged.removeprefix("events."): BATCH}
    (unread,) = (u for r in results for u in r.unread)
    assert (unread.topic, unread.partition, unread.offset) == (damaged, 0, BATCH)
    assert "damaged" in unread.why
    assert {s.topic: s.end for r in results for s in r.spans} == {good: EVENTS, damaged: BATCH}


def test_an_operator_skips_the_damaged_batch_alone_and_it_is_a_gap_by_topic_partition_and_offsets(
    broker: PlainBroker, config: Config
) -> None:
    damaged = topic_of_events(broker, "damaged")
    at_it = StagingPosition(
        cluster_id="c", topic_id="id", topic=damaged, partition=0, next_offset=BATCH
    )
    with Database(config.etl.ledger) as database:
        lease = database.acquire("consumer:default")
        insert_new_positions(database, lease, [at_it])
        nothing = StagedBatch(
            folder="", starts=(), ends=(), files=(), groups=(), audit_groups=(), reports=()
        )
        error = ReadError(
            topic=damaged, partition=0, offset=BATCH, reason="its CRC is wrong", since_ms=1_000
        )
        assert len(commit_batch(database, lease, nothing, [error])) == 1
        assert commit_batch(database, lease, nothing, [error]) == [], "known by now"
        assert read_errors(database)[Partition(damaged, 0)].again_at_ms == 1_000 + 2 * PAUSE_MS
        with pytest.raises(UsageError, match=f"can be read from offset {BATCH} again"):
            skip_unreadable(config, damaged, 0)
        with broker.log(damaged).with_flipped_bit(
            broker.log(damaged).read().index(b"datum 015"), 0
        ):
            skip_unreadable(config, damaged, 0)
        assert [p.next_offset for p in positions(database, "c")] == [2 * BATCH]
        (gap,) = open_gaps(database)
        assert gap.topic == damaged
        assert gap.what.startswith(
            f"topic {damaged} partition 0: offsets [{BATCH}, {2 * BATCH}) could not be read"
        )
        assert not read_errors(database)


def test_a_topic_of_events_that_is_deleted_holds_its_type_alone(
    broker: PlainBroker, config: Config
) -> None:
    kept, deleted = (topic_of_events(broker, name) for name in ("kept", "deleted"))
    for control in CONTROL:
        if control not in broker.cluster.names():
            broker.make_topic(control)
    types = [
        EventType(name=t.removeprefix("events."), fields=[{"name": "n", "type": "long"}])
        for t in (kept, deleted)
    ]
    sources = [Source(name="app", types=[t.name for t in types])]
    put_rules(config, types, sources, Hour(1_799_996_400, 3600))
    with Database(config.etl.ledger) as database:
        lease = database.acquire("consumer:default")
        planner = Planner(config, lease, "default")
        first = planner.next_batch()
        assert first is not None
        assert {s.span.topic for task in first.tasks for s in task} == {kept, deleted}
        broker.cluster.admin.delete_topics([deleted])[deleted].result(30)
        wait_for(lambda: deleted not in broker.cluster.names(), f"{deleted} is gone")
        planner.close()
        planner = Planner(config, lease, "default")  # a planner compares topics at its first batch
        after = planner.next_batch()
        assert after is not None
        assert {s.span.topic for task in after.tasks for s in task} == {kept}
        (error,) = read_errors(database).values()
        assert (error.topic, error.reason) == (deleted, "the topic does not exist")
        planner.close()


@pytest.mark.parametrize(("at", "end"), [(0, 3), (4, 5)])
def test_an_operator_skips_records_of_promises_that_no_service_wrote_and_none_that_one_did(
    broker: PlainBroker, config: Config, at: int, end: int
) -> None:
    if AUDIT not in broker.cluster.names():
        broker.make_topic(AUDIT)
    start = broker.cluster.ends([Partition(AUDIT, 0)])[Partition(AUDIT, 0)]
    junk, good = (
        (b"a key", b"no promise"),
        (b"12345678", framing_header(1) + audit_record().encode()),
    )
    broker.append(AUDIT, [junk, junk, junk, good, junk])
    (result,) = staged(config, AUDIT, start=start + at, end=start + 5)
    (unread,) = result.unread
    assert (result.spans, unread.offset) == (
        (),
        start + at,
    ) and "only the delivery service may" in unread.why
    with Database(config.etl.ledger) as database:
        lease = database.acquire("consumer:default")
        insert_new_positions(
            database,
            lease,
            [
                StagingPosition(
                    cluster_id="c", topic_id="id", topic=AUDIT, partition=0, next_offset=start + at
                )
            ],
        )
        nothing = StagedBatch(
            folder="", starts=(), ends=(), files=(), groups=(), audit_groups=(), reports=()
        )
        commit_batch(database, lease, nothing, collect_read_errors([result], 1_000))
        assert (
            f"offsets [{start + at}, {start + end}) could not be read"
            in skip_unreadable(config, AUDIT, 0).what
        )
