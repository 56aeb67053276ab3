"""A real broker's log loses its end and grows again: leader epochs tell, whatever its length is by
then (KIP-320).
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.plain_broker import PlainBroker, Record
from tests.support.records import audit_record
from tests.support.rules import put_rules

from hourmark.avro.framing import framing_header
from hourmark.clock import SystemClock
from hourmark.config.groups import EtlSettings, KafkaSettings, StorageSettings
from hourmark.config.loading import Config
from hourmark.kafka.clients import Partition, client_settings
from hourmark.kafka.topic_names import AUDIT, CONTROL, events_topic
from hourmark.records.audit import Promise
from hourmark.records.event_id import LineIds
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark.rules.event_types import EventType, Source
from hourmark_etl.ledger.batches import commit_batch, positions
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.partitions.offset_gaps import all_gaps
from hourmark_etl.ledger.partitions.read_errors import PAUSE_MS, read_errors
from hourmark_etl.model import StagingPosition
from hourmark_etl.staging.consumer import (
    build_batch,
    collect_read_errors,
    restart_truncated_partitions,
)
from hourmark_etl.staging.planner import Planner, build_stage_plan
from hourmark_etl.staging.stage import TaskResult, read_and_stage
from hourmark_etl.staging.unreadable import skip_unreadable
from hourmark_etl.storage import open_storage
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
IDS = LineIds("a" * 32, "b" * 32, 0)
STAGED, KEPT = 10, 4
# to the ledger: then datums, which are of one size here, are not checked before they are written
UNKNOWN_ID = 999


@dataclasses.dataclass
class Stager:
    """What a driver does to stage, without Spark."""

    broker: PlainBroker
    config: Config
    topic: str

    def __post_init__(self) -> None:
        self.database = Database(self.config.etl.ledger)
        self.lease = self.database.acquire("consumer:default")
        self.planner = Planner(self.config, self.lease, "default")
        self.cluster_id = self.broker.cluster.cluster_id()

    def stage(self) -> int:
        """Batch after batch until nothing is new; how many events were staged, known or not."""
        staged = 0
        while (planned := self.planner.next_batch()) is not None:
            answers: list[TaskResult] = []
            for task in planned.tasks:
                topics = {s.span.topic for s in task}
                plan = build_stage_plan(
                    self.config, planned.folder, topics, "a ledger", self.planner.schemas(topics)
                )
                central = self.config.kafka.central_cluster
                answers += read_and_stage(
                    task,
                    plan,
                    open_storage(self.config.storage),
                    central,
                    self.config.kafka.max_message_bytes,
                )
            batch = build_batch(answers, self.cluster_id, "default", 1)
            now_ms = SystemClock().now_ms()
            commit_batch(self.database, self.lease, batch, collect_read_errors(answers, now_ms))
            if truncated := {
                Partition(u.topic, u.partition) for a in answers for u in a.unread if u.is_truncated
            }:
                restart_truncated_partitions(
                    self.database,
                    self.lease,
                    self.broker.cluster,
                    self.cluster_id,
                    lambda t: t,
                    truncated,
                    now_ms,
                )
            staged += sum(g.rows for g in batch.groups)
        return staged

    def position(self) -> StagingPosition:
        return next(p for p in positions(self.database, self.cluster_id) if p.topic == self.topic)

    def held(self) -> list[int]:
        """From which offsets partitions cannot be staged."""
        return [error.offset for error in read_errors(self.database).values()]

    def end(self) -> None:
        self.planner.close()
        self.database.close()


@pytest.fixture
def broker(stack: LocalStack, tmp_path: Path) -> PlainBroker:
    return PlainBroker(tmp_path / "broker", stack.programs)


@pytest.fixture
def config(broker: PlainBroker, tmp_path: Path) -> Config:
    storage = StorageSettings(root=f"file://{tmp_path}/root")
    etl = EtlSettings(ledger=f"sqlite:///{tmp_path}/ledger.sqlite")
    return Config(kafka=KafkaSettings(edge=broker.settings), storage=storage, etl=etl)


def events(numbers: Sequence[int]) -> list[Record]:
    keys = (
        RecordKey(IDS.make(1_800_000_000_000 + n, n, b"line"), RangeId(b"12345678")).encode()
        for n in numbers
    )
    return [
        (key, framing_header(UNKNOWN_ID) + b"datum %03d" % n)
        for key, n in zip(keys, numbers, strict=True)
    ]


def begin(broker: PlainBroker, config: Config) -> Stager:
    """Its topics and its ledger; the broker runs."""
    name = f"click-{uuid.uuid4().hex[:8]}"
    for topic in (*CONTROL, events_topic(name)):
        broker.make_topic(topic)
    types = [EventType(name=name, fields=[{"name": "n", "type": "long"}])]
    put_rules(config, types, [Source(name="app", types=[name])], Hour(1_799_996_400, 3600))
    return Stager(broker, config, events_topic(name))


def promises(numbers: Sequence[int]) -> list[Record]:
    """Audit records of one size."""
    promised = (Promise("click", 1_799_996_400, 1, 5),)
    return [
        (
            b"%08d" % n,
            framing_header(1)
            + audit_record(range_id=RangeId(b"%08d" % n), promised=promised).encode(),
        )
        for n in numbers
    ]


def lose_the_end(broker: PlainBroker, topic: str) -> None:
    """All records have the same size."""
    log = broker.log(topic)
    log.cut(len(log.read()) // STAGED * KEPT)


@pytest.fixture(
    params=[
        pytest.param(20, id="beyond", marks=pytest.mark.long),
        pytest.param(STAGED - KEPT, id="to the very offset"),
        pytest.param(2, id="not as far", marks=pytest.mark.long),
    ]
)
def grown(request: pytest.FixtureRequest) -> int:
    """By how many records the log grows after it lost its end."""
    return int(request.param)


def test_a_log_that_lost_its_end_is_staged_again_however_far_it_grew(
    broker: PlainBroker, config: Config, grown: int
) -> None:
    with broker.running():
        stager = begin(broker, config)
        broker.append(stager.topic, events(range(STAGED)), batched=False)
        assert stager.stage() == STAGED
        assert stager.position().epoch_next == STAGED
    lose_the_end(broker, stager.topic)
    with broker.running():
        broker.append(stager.topic, events(range(100, 100 + grown)), batched=False)
        assert stager.stage() == KEPT + grown
        (gap,) = all_gaps(stager.database)
        assert gap.topic == stager.topic
        assert f"it was staged to offset {STAGED}, and its log lost records before" in gap.what
        assert stager.position().next_offset == KEPT + grown
        stager.end()


@pytest.mark.long
def test_a_new_leader_of_a_whole_log_is_no_loss_even_behind_markers_of_its_own(
    broker: PlainBroker, config: Config
) -> None:
    """The marker that ends the first transaction is written before the restart, that of another
    transaction after it.
    """
    with broker.running():
        stager = begin(broker, config)
        broker.append(stager.topic, events(range(STAGED)), batched=False)
        assert stager.stage() == STAGED
    with broker.running():
        producer = Producer(client_settings(broker.settings, transactional_id=uuid.uuid4().hex))
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(stager.topic, key=b"never", value=b"read", partition=0)
        assert producer.flush(30) == 0
        producer.abort_transaction(30)
        assert stager.stage() == 0
        assert (stager.position().next_offset, stager.position().epoch_next) == (STAGED + 2, STAGED)
    with broker.running():
        assert stager.stage() == 0, "an idle partition is compared with its new leader"
        broker.append(stager.topic, events([50]))
        assert stager.stage() == 1
        assert all_gaps(stager.database) == []
        stager.end()


def test_promises_that_were_lost_hold_every_type_and_what_follows_is_read_on(
    broker: PlainBroker, config: Config
) -> None:
    audit = AUDIT
    with broker.running():
        stager = begin(broker, config)
        stager.topic = audit
        broker.append(audit, promises(range(STAGED)), batched=False)
        stager.stage()
        assert stager.position().epoch_next == STAGED
    lose_the_end(broker, audit)
    with broker.running():
        broker.append(audit, promises(range(100, 120)), batched=False)
        stager.stage()
        (gap,) = all_gaps(stager.database)
        assert (gap.topic, gap.accepted_at_ms) == (audit, None)
        assert stager.position().next_offset == KEPT + 20
        stager.end()


def test_bad_promises_behind_good_ones_and_before_a_damaged_batch_are_no_lost_end(
    broker: PlainBroker, config: Config
) -> None:
    """Each is held at its own offset, however often it is tried, and an operator skips both."""
    with broker.running():
        stager = begin(broker, config)
        stager.topic = AUDIT
        broker.append(AUDIT, promises(range(3)))
        stager.stage()
        junk = (b"a key", b"no promise")
        broker.append(AUDIT, [*promises([3]), junk, *promises([4]), junk])
        broker.append(AUDIT, promises([5, 6]))
        broker.append(AUDIT, promises([7]))
        log = broker.log(AUDIT)
        with log.with_flipped_bit(log.read().index(b"%08d" % 6), 0):
            for _ in range(2):
                stager.stage()
                assert (stager.held(), stager.position().next_offset) == ([4], 4)
                time.sleep(PAUSE_MS / 1000 + 0.1)
            assert "offsets [4, 5) could" in skip_unreadable(config, AUDIT, 0).what
            stager.stage()
            assert stager.held() == [6]
            assert "offsets [6, 7) could" in skip_unreadable(config, AUDIT, 0).what
            stager.stage()
            assert stager.held() == [7]
            assert "offsets [7, 9) could" in skip_unreadable(config, AUDIT, 0).what
            stager.stage()
        assert (stager.held(), stager.position().next_offset) == ([], 10)
        assert not [gap for gap in all_gaps(stager.database) if gap.lost_end]
        stager.end()
