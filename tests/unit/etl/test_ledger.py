"""The ledger's contract, on SQLite and PostgreSQL: offsets move whole or not at all, a stale driver changes nothing, each step
of closing is taken once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from tests.support import ledger_queries
from tests.support.rules import put_rules

from hourmark.config import Config, Etl
from hourmark.errors import UsageError
from hourmark.event_types import EventType, Source
from hourmark.hours import Hour
from hourmark.manifest import Evidence, Grade, Manifest
from hourmark_etl.errors import StaleDriver, TopicReplaced
from hourmark_etl.ledger import batches, frontiers
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontier_rows import check_other_bucket_length
from hourmark_etl.ledger.listings import promises_between
from hourmark_etl.model import (
    AUDIT,
    EVENTS,
    AuditGroup,
    Position,
    Reporter,
    Seal,
    Span,
    StagedBatch,
    StagedFile,
    StagedGroup,
    State,
    to_signed,
    to_unsigned,
)

HOUR = Hour(1_800_000_000, 3600)
START = Position(cluster_id="cluster", topic_id="id-1", topic="events.click", partition=0, next_offset=0)
CLICK = EventType(name="click", fields=[{"name": "n", "type": "long"}])
SOURCES = [Source(name="app", types=["click"])]


@pytest.fixture
def config(ledger_url: str) -> Config:
    return Config(etl=Etl(ledger=ledger_url))


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    put_rules(config, [CLICK], SOURCES, HOUR)
    made = Database(config.etl.ledger)
    yield made
    made.close()


def group(path: str, hour: Hour = HOUR, rows: int = 1) -> StagedGroup:
    return StagedGroup(
        path=path,
        event_type="click",
        hour_s=hour.start_s,
        rows=rows,
        datum_bytes=10 * rows,
        low64_sum=2**64 - 1,
        schema_ids=(1,),
        first_row=0,
        first_id=bytes(16),
        last_id=bytes(16),
    )


def batch(end: int, *groups: StagedGroup, start: Position = START, audits: tuple[AuditGroup, ...] = ()) -> StagedBatch:
    paths = {g.path: (EVENTS, g.rows) for g in groups} | {a.path: (AUDIT, a.rows) for a in audits}
    span = Span(topic=start.topic, topic_id=start.topic_id, partition=start.partition, start=start.next_offset, end=end)
    files = tuple(StagedFile(path=path, kind=kind, rows=rows, spans=(span,)) for path, (kind, rows) in paths.items())
    return StagedBatch(
        folder="_staging/one",
        starts=(start,),
        ends=(dataclasses.replace(start, next_offset=end),),
        files=files,
        groups=groups,
        audit_groups=audits,
        reports=(),
    )


def seal(audit_next: int = 0) -> Seal:
    return Seal(
        grade="proved",
        method="join",
        cut_at_ms=1,
        audit_next=audit_next,
        audit_records=1,
        promised=1,
        unaudited=0,
        waived=(),
        offsets=(START,),
    )


def manifest(hour: Hour = HOUR) -> Manifest:
    evidence = Evidence(method="join", cut_at_ms=1, audit_records=1, promised=1, audit_next={"0": 0})
    return Manifest(
        type="click", hour=str(hour), bucket_seconds=3600, grade=Grade.PROVED, evidence=evidence, files=[], events=0, late={},
        duplicates_removed=0, unaudited=0, id_sum="0" * 16, offsets=[], ledger="l", ledger_commit=1, attempt="a", closed_at_ms=5,
        software="test",
    )  # fmt: skip


@pytest.mark.parametrize("value", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_sums_survive_signed_columns(value: int) -> None:
    assert -(2**63) <= to_signed(value) < 2**63
    assert to_unsigned(to_signed(value)) == value


def test_a_batch_moves_offsets_and_lists_its_groups(database: Database) -> None:
    lease = database.acquire("consumer:default")
    batches.begin_positions(database, lease, [START])
    batches.commit_batch(database, lease, batch(7, group("a", rows=3)))
    assert [p.next_offset for p in batches.positions(database, "cluster")] == [7]
    closer = database.acquire("closer")
    frontiers.freeze(database, closer, frontiers.frontiers(database, 3600), {"click": "events.click"})
    assert ledger_queries.listed_groups(database, "click", HOUR) == [group("a", rows=3)]


def test_a_batch_that_does_not_begin_at_the_ledgers_offset_changes_nothing(database: Database) -> None:
    lease = database.acquire("consumer:default")
    batches.begin_positions(database, lease, [START])
    batches.commit_batch(database, lease, batch(7, group("a")))
    with pytest.raises(StaleDriver, match=r"events.click partition 0: the ledger is not at offset 0"):
        batches.commit_batch(database, lease, batch(9, group("b")))
    assert [p.next_offset for p in batches.positions(database, "cluster")] == [7]
    closer = database.acquire("closer")
    frontiers.freeze(database, closer, frontiers.frontiers(database, 3600), {"click": "events.click"})
    assert [g.path for g in ledger_queries.listed_groups(database, "click", HOUR)] == ["a"]


def test_a_second_driver_fences_the_first(database: Database) -> None:
    first = database.acquire("consumer:default")
    batches.begin_positions(database, first, [START])
    second = database.acquire("consumer:default")
    with pytest.raises(StaleDriver, match="taken over"):
        batches.commit_batch(database, first, batch(7, group("a")))
    batches.commit_batch(database, second, batch(7, group("a")))


def test_a_topic_recreated_is_noticed(database: Database) -> None:
    lease = database.acquire("consumer:default")
    batches.begin_positions(database, lease, [START])
    with pytest.raises(TopicReplaced, match=r"events.click has id id-2, the ledger remembers id-1"):
        batches.begin_positions(database, lease, [dataclasses.replace(START, topic_id="id-2")])


def test_beginning_again_keeps_the_offsets(database: Database) -> None:
    lease = database.acquire("consumer:default")
    batches.begin_positions(database, lease, [START])
    batches.commit_batch(database, lease, batch(7))
    batches.begin_positions(database, lease, [START, dataclasses.replace(START, partition=1)])
    assert sorted((p.partition, p.next_offset) for p in batches.positions(database, "cluster")) == [(0, 7), (1, 0)]


def test_a_hosts_last_report_replaces_all_it_said_before(database: Database) -> None:
    lease = database.acquire("consumer:default")
    batches.begin_positions(database, lease, [START])
    one = Reporter(
        host_id="h",
        source="app",
        host_name="host",
        kind="tailer",
        incarnation="i",
        sequence=0,
        received_at_ms=5,
        caught_up_at_ms=5,
        pending_bytes=0,
        lost_bytes=0,
        goodbye=False,
        heard_at_ms=5,
    )
    two = dataclasses.replace(one, source="other")
    later = dataclasses.replace(one, sequence=1, caught_up_at_ms=9)
    with_reports = dataclasses.replace(batch(1), reports=((one, two), (later,), (later,), (one, two)))
    batches.commit_batch(database, lease, with_reports)
    assert batches.reporters(database) == [later]


def test_an_hour_goes_its_way_once_and_the_next_one_opens(database: Database) -> None:
    consumer, closer = database.acquire("consumer:default"), database.acquire("closer")
    batches.begin_positions(database, consumer, [START])
    batches.commit_batch(database, consumer, batch(7, group("a"), group("b", HOUR.next())))
    (opened,) = frontiers.frontiers(database, 3600)
    offsets = frontiers.freeze(database, closer, [opened], {"click": "events.click"})
    assert [p.next_offset for p in offsets["click"]] == [7]
    batches.commit_batch(
        database, consumer, batch(8, group("late"), start=dataclasses.replace(START, next_offset=7))
    )  # arrives after the freeze: belongs to a later bucket
    (frozen,) = frontiers.frontiers(database, 3600)
    assert frozen.state is State.FROZEN
    frontiers.seal(database, closer, {"click": [seal(11)]}, [frozen])
    (sealed,) = frontiers.frontiers(database, 3600)
    frontiers.close_all(database, closer, [frontiers.Closing(sealed, manifest())])
    (reopened,) = frontiers.frontiers(database, 3600)
    assert (reopened.hour, reopened.state, reopened.settled_next) == (HOUR.next(), State.OPEN, 11)
    assert [g.path for g in ledger_queries.listed_groups(database, "click", HOUR)] == ["a"]
    frontiers.freeze(database, closer, [reopened], {"click": "events.click"})
    assert [g.path for g in ledger_queries.listed_groups(database, "click", HOUR.next())] == ["b", "late"]
    assert [g.path for g in ledger_queries.listed_before(database, "click", HOUR.next(), {HOUR.start_s})] == ["a"]


@pytest.mark.parametrize("step", ["freeze", "seal", "close", "unfreeze"])
def test_a_step_that_was_taken_already_is_refused(database: Database, step: str) -> None:
    closer = database.acquire("closer")
    (opened,) = frontiers.frontiers(database, 3600)
    topics = {"click": "events.click"}
    frontiers.freeze(database, closer, [opened], topics)
    (frozen,) = frontiers.frontiers(database, 3600)
    frontiers.seal(database, closer, {"click": [seal()]}, [frozen])
    (sealed,) = frontiers.frontiers(database, 3600)
    frontiers.close_all(database, closer, [frontiers.Closing(sealed, manifest())])
    with pytest.raises(StaleDriver, match="another closer has moved it"):
        match step:
            case "freeze":
                frontiers.freeze(database, closer, [opened], topics)
            case "seal":
                frontiers.seal(database, closer, {"click": [seal()]}, [frozen])
            case "close":
                frontiers.close_all(database, closer, [frontiers.Closing(sealed, manifest())])
            case "unfreeze":
                frontiers.unfreeze_all(database, closer, [(frozen, ["why"])])


def test_unfreezing_takes_the_listing_back_and_keeps_the_alarm(database: Database) -> None:
    consumer, closer = database.acquire("consumer:default"), database.acquire("closer")
    batches.begin_positions(database, consumer, [START])
    batches.commit_batch(database, consumer, batch(7, group("a")))
    frontiers.freeze(database, closer, frontiers.frontiers(database, 3600), {"click": "events.click"})
    frontiers.unfreeze_all(database, closer, [(frontiers.frontiers(database, 3600)[0], ["range 12 is missing"])])
    (again,) = frontiers.frontiers(database, 3600)
    assert (again.state, again.alarm) == (State.OPEN, ("range 12 is missing",))
    assert ledger_queries.listed_groups(database, "click", HOUR) == []


def test_promises_are_found_by_hour_and_offset(database: Database) -> None:
    consumer = database.acquire("consumer:default")
    batches.begin_positions(database, consumer, [START])
    before = Hour(HOUR.start_s - 3600)
    audits = (
        AuditGroup(
            path="x", event_type="click", hour_s=HOUR.start_s, rows=1, first_offset=5, last_offset=9, promised=3, low64_sum=7
        ),
        AuditGroup(
            path="x",
            event_type="click",
            hour_s=before.start_s,
            rows=1,
            first_offset=7,
            last_offset=8,
            promised=1,
            low64_sum=2**63,
        ),
    )
    batches.commit_batch(database, consumer, batch(7, audits=audits))
    assert promises_between(database, "click", {HOUR.start_s}, at_least=0, below=6) == [audits[0]]
    assert promises_between(database, "click", {HOUR.start_s}, at_least=0, below=5) == []
    assert promises_between(database, "click", {before.start_s}, at_least=8, below=20) == [audits[1]]
    assert promises_between(database, "click", {before.start_s}, at_least=9, below=20) == []


def test_a_types_first_hour_is_fixed_once_and_its_sources_are_renewed(config: Config, database: Database) -> None:
    more = [*SOURCES, Source(name="web", types=["click"])]
    assert put_rules(config, [CLICK], more, Hour(HOUR.end_s)) == []
    (row,) = frontiers.frontiers(database, 3600)
    assert row.first_hour == HOUR
    assert row.sources == {"app", "web"}
    with pytest.raises(UsageError, match="set it back"):
        put_rules(config, [CLICK], SOURCES, Hour(HOUR.start_s, 60))


def test_a_source_taken_from_a_type_is_awaited_until_its_hosts_say_goodbye(config: Config, database: Database) -> None:
    lease = database.acquire("consumer:default")
    batches.begin_positions(database, lease, [START])
    report = Reporter(
        host_id="h",
        source="app",
        host_name="host",
        kind="tailer",
        incarnation="i",
        sequence=0,
        received_at_ms=5,
        caught_up_at_ms=5,
        pending_bytes=0,
        lost_bytes=0,
        goodbye=False,
        heard_at_ms=5,
    )
    batches.commit_batch(database, lease, dataclasses.replace(batch(1), reports=((report,),)))
    others = [Source(name="web", types=["click"])]
    put_rules(config, [CLICK], others, HOUR)
    assert frontiers.frontiers(database, 3600)[0].sources == {"app", "web"}
    bye = dataclasses.replace(report, sequence=1, goodbye=True)
    start = dataclasses.replace(START, next_offset=1)
    batches.commit_batch(database, lease, dataclasses.replace(batch(2, start=start), reports=((bye,),)))
    put_rules(config, [CLICK], others, HOUR)
    assert frontiers.frontiers(database, 3600)[0].sources == {"web"}


def test_another_bucket_length_is_refused_at_the_start(database: Database) -> None:
    check_other_bucket_length(database, 3600)
    with pytest.raises(UsageError, match=r"parsing\.bucket_seconds is 60, but the ledger's buckets have 3600 s"):
        check_other_bucket_length(database, 60)


def test_a_types_shard_is_as_declared(config: Config, database: Database) -> None:
    assert frontiers.frontiers(database, 3600)[0].shard == "default"
    put_rules(config, [CLICK.model_copy(update={"shard": "big"})], SOURCES, HOUR)
    assert frontiers.frontiers(database, 3600)[0].shard == "big"


def test_every_change_counts_the_commit_number_up(database: Database) -> None:
    uuid, before = database.identity()
    database.acquire("closer")
    assert database.identity() == (uuid, before + 1)


def test_epochs_of_all_leases_are_in_one_order(database: Database) -> None:
    taken = [database.acquire(name).epoch for name in ("closer", "consumer:default", "closer", "consumer:big")]
    assert taken == sorted(set(taken))
