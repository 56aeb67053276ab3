"""Back-filling at odd moments: damaged rows, clocks that were wrong, a first hour in the future,
the year 1970, and a ledger that is lost while a type that came later is back-filled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Table, update
from tests.support.closing import (
    arrive,
    frontier,
    hour,
    manifest,
    manifests,
    open_hours,
    override,
    poll,
    report,
    send,
    send_old,
    settle,
    settle_old,
    until,
    wait_of,
)
from tests.support.rebuilding import begin, lose_ledger, staged_files
from tests.support.restaging import retention_passes
from tests.support.rules import put_rules
from tests.support.simulator.truth import (
    FIRST_HOUR,
    OLD_HOURS,
    SCHEMA_IDS,
    SOURCES,
    TYPES,
    config_of,
)
from tests.support.simulator.world import World

from hourmark.kafka.topic_names import CONTROL
from hourmark.records.hours import Hour
from hourmark.rules.event_types import EventType, Source
from hourmark_etl.buckets.verify import verify_bucket
from hourmark_etl.closing.cut.cut import Waiting
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.backfill import read_backfill_notices
from hourmark_etl.ledger.heartbeat import DriverSigns
from hourmark_etl.operators.explain import explain_hour
from hourmark_etl.operators.hour_facts import read_hour_facts

pytestmark = pytest.mark.slow

OLDEST, THIRD = OLD_HOURS[0], OLD_HOURS[3]
HOUR_MS = 3_600_000


@pytest.mark.parametrize("table", [tables.groups, tables.audit_groups], ids=lambda t: t.name)
def test_a_damaged_hour_of_a_staged_row_holds_its_own_type_alone(
    world: World, table: Table
) -> None:
    send_old(world, OLDEST)
    send_old(world, THIRD, "view")
    arrive(world)
    with world.database.transaction() as connection:
        connection.execute(
            update(table).where(table.c.type == "click").values(hour=OLDEST.start_s + 2)
        )
    settle_old(world)
    assert wait_of(world).phase == "ledger"
    assert [m.hour for m in manifests(world, "view")] == [str(THIRD)]


def test_a_clock_that_was_ahead_when_an_hour_was_noticed_delays_nothing(world: World) -> None:
    world.driver_clock.ahead_ms = 3 * HOUR_MS
    send_old(world, OLDEST)
    settle(world)
    world.driver_clock.ahead_ms = 0
    settle_old(world)
    settle_old(world)
    assert [m.hour for m in manifests(world)] == [str(OLDEST)]


def test_a_closer_that_is_started_again_does_not_wait_anew_for_a_back_fill(world: World) -> None:
    send_old(world, OLDEST)
    settle(world)
    assert manifests(world) == [], "noticed just now"
    world.clock.advance(12)
    report(world)
    world.clock.advance(30)
    world.start_closer()
    poll(world)
    assert [m.hour for m in manifests(world)] == [str(OLDEST)]


def test_a_seal_states_why_it_waived_a_source_that_did_not_catch_up(world: World) -> None:
    world.producers.hosts[0].dead = True
    send_old(world, OLDEST)
    deadline_s = world.config.etl.deadline_seconds
    settle(world)
    until(world, FIRST_HOUR, deadline_s + 1)
    settle(world)
    settle(world)
    world.clock.advance(12)
    settle(world)
    m = manifest(world, at=OLDEST)
    assert m.grade.value == "timed_out"
    print(m.evidence.waived)
    assert "appeared while" not in " ".join(m.evidence.waived)


def test_an_old_hour_that_was_noticed_late_says_what_it_waits_for(world: World) -> None:
    world.producers.hosts[0].dead = True
    deadline_s = world.config.etl.deadline_seconds
    until(world, FIRST_HOUR, deadline_s - 60)
    send_old(world, OLDEST, "click", "view")
    settle(world)
    world.clock.advance(70)
    settle(world)
    assert frontier(world).hour == OLDEST, "the source has as long as after any hour's end"
    assert "host-0" in " ".join(wait_of(world).what)
    facts = read_hour_facts(world.database, world.config, "click", OLDEST, world.clock.now_ms())
    now_ms = world.clock.now_ms() - 20_000
    facts = dataclasses.replace(facts, now_ms=now_ms, driver=DriverSigns(heartbeat_ms=now_ms))
    answer = explain_hour(facts)
    assert (
        "host-0" in answer.reasons[0].what
        and "before the back-fill began" in answer.reasons[0].what
    )
    noticed_ms = read_backfill_notices(world.database)["click"].noticed_ms
    assert answer.times_out_at_ms == noticed_ms + round(1000 * deadline_s)
    world.clock.advance(deadline_s)
    settle(world)
    assert manifest(world, at=OLDEST).grade.value == "timed_out"


def test_hour_zero_is_back_filled_and_verified(world: World) -> None:
    send_old(world, Hour(0))
    settle_old(world)
    assert "click/date=1970-01-01/hour=00/_SUCCESS" in world.storage.content("click")
    assert verify_bucket(world.storage, "click", Hour(0)).findings == ()


def step(world: World) -> None:
    """The closer polls until it waits; the judge does not know of another first hour."""
    world.producers.report(0)
    arrive(world)
    while not isinstance(world.closer.step(), Waiting):
        pass


def numbered(event_type: str) -> EventType:
    return EventType(name=event_type, fields=[{"name": "number", "type": "long"}])


@pytest.fixture
def early_world(tmp_path: Path) -> Iterator[World]:
    """Types whose first hour is in the future, as of an operator who begins tomorrow."""
    types = [numbered(t) for t in TYPES]
    put_rules(config_of(tmp_path / "template"), types, SOURCES, hour(10), SCHEMA_IDS)
    made = World(tmp_path, tmp_path / "template")
    yield made
    made.end()


@pytest.mark.parametrize("is_forced", [False, True])
def test_an_hour_that_has_not_ended_is_not_skipped(early_world: World, is_forced: bool) -> None:
    world = early_world
    send(world, ["click"])
    step(world)
    until(world, hour(0), 2)
    if is_forced:
        override(world)
    step(world)
    assert world.storage.exists(FIRST_HOUR.bucket_path("click"))
    until(world, hour(1), 2)  # which holds nothing
    step(world)
    skipped = frontier(world).hour
    send(world, ["click"])
    until(world, hour(2), 2)
    step(world)
    assert skipped == hour(2)
    assert world.storage.exists(hour(2).bucket_path("click"))


@pytest.fixture
def world_of_click(tmp_path: Path) -> Iterator[World]:
    """`view` is applied later."""
    sources = [Source(name="app", types=["click"])]
    config = config_of(tmp_path / "template")
    put_rules(config, [numbered("click")], sources, FIRST_HOUR, SCHEMA_IDS)
    made = World(tmp_path, tmp_path / "template")
    yield made
    made.end()


def test_a_rebuild_during_the_back_fill_of_a_later_type_needs_no_older_promises(
    world_of_click: World,
) -> None:
    world = world_of_click
    for n in range(6):
        send(world, ["click"])
        step(world)
        until(world, hour(n), 2)
        step(world)
        if n == 3:
            retention_passes(world, *CONTROL)
            old_files = staged_files(world, "audit")
    now = Hour.containing(world.clock.now_ms())
    put_rules(world.config, [numbered("view")], SOURCES, now, SCHEMA_IDS)
    begin(world)  # as a driver does when types are added
    send_old(world, OLDEST, "view")
    step(world)
    world.clock.advance(12)
    step(world)
    assert frontier(world, "view").previous_hour == OLDEST
    world.ledgers.keep_checks(0)
    for path in old_files:  # as cleanup does once they are old
        world.storage.delete(path)
    assert lose_ledger(world).lost == []
    send(world, ["click", "view"])
    until(world, now, 2)
    step(world)
    assert open_hours(world) == {now.next()}


def test_a_rebuild_without_a_record_of_first_hours_closes_no_hours_since_an_old_bucket(
    world: World,
) -> None:
    send_old(world, OLDEST)
    settle_old(world)
    assert [m.hour for m in manifests(world)] == [str(OLDEST)]
    closed = Hour.containing(manifests(world)[-1].closed_at_ms)
    for path in world.storage.content("_ledger"):
        if "first-hours" in path:
            world.storage.delete(path)
    done = lose_ledger(world)
    (note,) = [note for note in done.notes if "no record states its first hour" in note]
    assert note.startswith("type click: ") and f"newest bucket, {OLDEST}" in note
    first = frontier(world)
    assert first.first_hour == closed.previous()
    assert (first.hour, first.previous_hour) == (OLDEST.next(), OLDEST)
    for _ in range(3):
        settle_old(world)
    assert frontier(world).hour >= first.first_hour, "nothing between holds anything"
    assert len(manifests(world)) < 5
