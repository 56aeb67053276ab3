"""The ledger's contract, on SQLite and PostgreSQL: offsets move whole or not at all, a stale driver
changes nothing, each step of closing is taken once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest
from tests.support import ledger_queries
from tests.support.records import (
    APP,
    CLICK,
    HOUR,
    TOPICS,
    WEB,
    audit_group,
    group,
    manifest,
    position,
    seal,
    span,
    staged_batch,
    staged_file,
    tailer,
)
from tests.support.rules import ledger_of_click, put_rules

from hourmark.config.groups import EtlSettings
from hourmark.config.loading import Config
from hourmark.errors import UsageError
from hourmark.records.hours import Hour
from hourmark_etl.errors import StaleDriver, TopicReplaced
from hourmark_etl.ledger import batches, frontiers
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.frontier_rows import check_bucket_length
from hourmark_etl.ledger.hosts.reporters import reporters
from hourmark_etl.ledger.staged.listings import find_audit_groups_between
from hourmark_etl.model import (
    AUDIT,
    EVENTS,
    AuditGroup,
    AuditOffsets,
    Frontier,
    HourState,
    StagedBatch,
    StagedGroup,
    to_signed,
    to_unsigned,
)

START = position()


@pytest.fixture
def config(ledger_url: str) -> Config:
    return Config(etl=EtlSettings(ledger=ledger_url))


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    made = ledger_of_click(config.etl.ledger)
    yield made
    made.close()


def batch(
    end: int, *groups: StagedGroup, start: int = 0, audits: tuple[AuditGroup, ...] = ()
) -> StagedBatch:
    paths = {g.path: (EVENTS, g.rows) for g in groups} | {a.path: (AUDIT, a.rows) for a in audits}
    files = tuple(staged_file(path, *of, spans=(span(start, end),)) for path, of in paths.items())
    return staged_batch(
        starts=(position(start),),
        ends=(position(end),),
        files=files,
        groups=groups,
        audit_groups=audits,
    )


def consuming(database: Database) -> Lease:
    """Its topic is known, at offset 0."""
    lease = database.acquire("consumer:default")
    batches.insert_new_positions(database, lease, [START])
    return lease


def opened(database: Database) -> Frontier:
    """The one type's frontier as it is now."""
    (found,) = frontiers.frontiers(database, 3600)
    return found


def listed(database: Database, hour: Hour = HOUR) -> list[str]:
    return [g.path for g in ledger_queries.read_assigned_groups(database, "click", hour)]


def offsets(database: Database) -> list[int]:
    return [p.next_offset for p in batches.positions(database, "cluster")]


@pytest.mark.parametrize("value", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_sums_survive_signed_columns(value: int) -> None:
    assert -(2**63) <= to_signed(value) < 2**63
    assert to_unsigned(to_signed(value)) == value


def test_a_batch_moves_offsets_and_lists_its_groups(database: Database) -> None:
    lease = consuming(database)
    batches.commit_batch(database, lease, batch(7, group("a", rows=3, low64_sum=2**64 - 1)))
    assert offsets(database) == [7]
    frontiers.freeze(database, database.acquire("closer"), [opened(database)], TOPICS)
    assert ledger_queries.read_assigned_groups(database, "click", HOUR) == [
        group("a", rows=3, low64_sum=2**64 - 1)
    ]


def test_a_batch_that_does_not_begin_at_the_ledgers_offset_changes_nothing(
    database: Database,
) -> None:
    lease = consuming(database)
    batches.commit_batch(database, lease, batch(7, group("a")))
    with pytest.raises(
        StaleDriver, match=r"events.click partition 0: this batch began at offset 0"
    ):
        batches.commit_batch(database, lease, batch(9, group("b")))
    assert offsets(database) == [7]
    frontiers.freeze(database, database.acquire("closer"), [opened(database)], TOPICS)
    assert listed(database) == ["a"]


def test_a_second_driver_fences_the_first(database: Database) -> None:
    first = consuming(database)
    second = database.acquire("consumer:default")
    with pytest.raises(StaleDriver, match="taken over"):
        batches.commit_batch(database, first, batch(7, group("a")))
    batches.commit_batch(database, second, batch(7, group("a")))


def test_a_topic_recreated_is_noticed(database: Database) -> None:
    lease = consuming(database)
    with pytest.raises(
        TopicReplaced,
        match=r"events.click has id id-2, but in the ledger it has id id of events.click",
    ):
        batches.insert_new_positions(database, lease, [position(topic_id="id-2")])


def test_beginning_again_keeps_the_offsets(database: Database) -> None:
    lease = consuming(database)
    batches.commit_batch(database, lease, batch(7))
    batches.insert_new_positions(database, lease, [START, position(partition=1)])
    assert sorted((p.partition, p.next_offset) for p in batches.positions(database, "cluster")) == [
        (0, 7),
        (1, 0),
    ]


def test_a_hosts_last_report_replaces_all_it_said_before(database: Database) -> None:
    lease = consuming(database)
    one, two, later = tailer(), tailer(source="other"), tailer(sequence=1, caught_up_at_ms=9)
    with_reports = dataclasses.replace(
        batch(1), reports=((one, two), (later,), (later,), (one, two))
    )
    batches.commit_batch(database, lease, with_reports)
    assert reporters(database) == [later]


def test_an_hour_goes_its_way_once_and_the_next_one_opens(database: Database) -> None:
    consumer, closer = consuming(database), database.acquire("closer")
    batches.commit_batch(database, consumer, batch(7, group("a"), group("b", HOUR.next())))
    (begun,) = frontiers.freeze(database, closer, [opened(database)], TOPICS)["click"]
    assert begun.next_offset == 7
    batches.commit_batch(
        database, consumer, batch(8, group("late"), start=7)
    )  # after the freeze: belongs to a later bucket
    assert opened(database).state is HourState.FROZEN
    frontiers.seal(database, closer, {"click": [seal(audit_next=11)]}, [opened(database)])
    frontiers.record_closed_hours(
        database, closer, [frontiers.PublishedHour(opened(database), manifest())]
    )
    reopened = opened(database)
    assert (reopened.hour, reopened.state, reopened.settled_next) == (
        HOUR.next(),
        HourState.OPEN,
        AuditOffsets.from_offsets(11),
    )
    assert listed(database) == ["a"]
    frontiers.freeze(database, closer, [reopened], TOPICS)
    assert listed(database, HOUR.next()) == ["b", "late"]
    assert [
        g.path for g in ledger_queries.listed_before(database, "click", HOUR.next(), {HOUR.start_s})
    ] == ["a"]


STEPS: dict[str, Callable[[Database, Lease, Frontier], object]] = {
    "freeze": lambda database, lease, f: frontiers.freeze(database, lease, [f], TOPICS),
    "seal": lambda database, lease, f: frontiers.seal(database, lease, {"click": [seal()]}, [f]),
    "close": lambda database, lease, f: frontiers.record_closed_hours(
        database, lease, [frontiers.PublishedHour(f, manifest())]
    ),
    "unfreeze": lambda database, lease, f: frontiers.unfreeze_hours(
        database, lease, [(f, ["why"])]
    ),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_was_taken_already_is_refused(database: Database, step: str) -> None:
    lease, before = database.acquire("closer"), {}
    for name in ("freeze", "seal", "close"):
        before[name] = opened(database)
        STEPS[name](database, lease, before[name])
    before["unfreeze"] = before["seal"]
    with pytest.raises(StaleDriver, match="another closer has changed it"):
        STEPS[step](database, lease, before[step])


def test_unfreezing_takes_the_listing_back_and_keeps_the_alarm(database: Database) -> None:
    consumer, closer = consuming(database), database.acquire("closer")
    batches.commit_batch(database, consumer, batch(7, group("a")))
    frontiers.freeze(database, closer, [opened(database)], TOPICS)
    frontiers.unfreeze_hours(database, closer, [(opened(database), ["range 12 is missing"])])
    again = opened(database)
    assert (again.state, again.alarm) == (HourState.OPEN, ("range 12 is missing",))
    assert listed(database) == []


def test_promises_are_found_by_hour_and_offset(database: Database) -> None:
    consumer = consuming(database)
    before = Hour(HOUR.start_s - 3600)
    audits = (
        audit_group(first_offset=5, last_offset=9, promised=3, low64_sum=7),
        audit_group(hour_s=before.start_s, first_offset=7, last_offset=8, low64_sum=2**63),
    )
    batches.commit_batch(database, consumer, batch(7, audits=audits))

    def found(hour: Hour, at_least: int, below: int) -> list[AuditGroup]:
        return find_audit_groups_between(
            database,
            "click",
            {hour.start_s},
            AuditOffsets.from_offsets(at_least),
            AuditOffsets.from_offsets(below),
        )

    assert found(HOUR, 0, 6) == [audits[0]]
    assert found(HOUR, 0, 5) == []
    assert found(before, 8, 20) == [audits[1]]
    assert found(before, 9, 20) == []


def test_a_types_first_hour_is_fixed_once_and_its_sources_are_renewed(
    config: Config, database: Database
) -> None:
    assert put_rules(config, [CLICK], [APP, WEB], Hour(HOUR.end_s)) == []
    row = opened(database)
    assert row.first_hour == HOUR
    assert row.sources == {"app", "web"}
    with pytest.raises(UsageError, match="set it to this value"):
        put_rules(config, [CLICK], [APP], Hour(HOUR.start_s, 60))


def test_a_source_taken_from_a_type_is_awaited_until_its_hosts_say_goodbye(
    config: Config, database: Database
) -> None:
    lease = consuming(database)
    batches.commit_batch(database, lease, dataclasses.replace(batch(1), reports=((tailer(),),)))
    put_rules(config, [CLICK], [WEB], HOUR)
    assert opened(database).sources == {"app", "web"}
    bye = tailer(sequence=1, goodbye=True)
    batches.commit_batch(database, lease, dataclasses.replace(batch(2, start=1), reports=((bye,),)))
    put_rules(config, [CLICK], [WEB], HOUR)
    assert opened(database).sources == {"web"}


def test_another_bucket_length_is_refused_at_the_start(database: Database) -> None:
    check_bucket_length(database, 3600)
    with pytest.raises(
        UsageError, match=r"parsing\.bucket_seconds is 60, but the ledger's buckets have 3600 s"
    ):
        check_bucket_length(database, 60)


def test_a_types_shard_is_as_declared(config: Config, database: Database) -> None:
    assert opened(database).shard == "default"
    put_rules(config, [CLICK.model_copy(update={"shard": "big"})], [APP], HOUR)
    assert opened(database).shard == "big"


@pytest.mark.slow
def test_every_change_counts_the_commit_number_up(database: Database) -> None:
    uuid, before = database.identity()
    database.acquire("closer")
    assert database.identity() == (uuid, before + 1)


def test_epochs_of_all_leases_are_in_one_order(database: Database) -> None:
    taken = [
        database.acquire(name).epoch
        for name in ("closer", "consumer:default", "closer", "consumer:big")
    ]
    assert taken == sorted(set(taken))
