"""Back-filling at odd moments: damaged rows, clocks that were wrong, a first hour in the future,
the year 1970, and a ledger that is lost while a type that came later is back-filled.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.support.closing import (
    arrive,
    frontier,
    hour,
    manifest,
    manifests,
    override,
    poll,
    send,
    settle,
    until,
    wait_of,
)
from tests.support.rebuilding import lose_ledger
from tests.support.simulator.truth import FIRST_HOUR, OLD_HOURS
from tests.support.simulator.world import World

from hourmark.records.hours import Hour
from hourmark_etl.buckets.verify import verify_bucket
from hourmark_etl.ledger import tables
from hourmark_etl.operators.explain import explain_hour
from hourmark_etl.operators.hour_facts import read_hour_facts

OLDEST, THIRD = OLD_HOURS[0], OLD_HOURS[3]
HOUR_MS = 3_600_000


def old_line(world: World, at: Hour, *types: str) -> None:
    send(world, types or ("click",), at.start_s * 1000 + 1000)


def settle_old(world: World) -> None:
    settle(world)
    world.clock.advance(12)
    settle(world)


@pytest.mark.parametrize("table", [tables.groups, tables.audit_groups], ids=lambda t: t.name)
def test_a_damaged_hour_of_a_staged_row_holds_its_own_type_alone(world: World, table) -> None:
    old_line(world, OLDEST)
    old_line(world, THIRD, "view")
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
    old_line(world, OLDEST)
    settle(world)
    world.driver_clock.ahead_ms = 0
    settle_old(world)
    settle_old(world)
    assert [m.hour for m in manifests(world)] == [str(OLDEST)]


def test_a_seal_states_why_it_waived_a_source_that_did_not_catch_up(world: World) -> None:
    world.producers.hosts[0].dead = True
    old_line(world, OLDEST)
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


def test_hour_zero_is_back_filled_and_verified(world: World) -> None:
    old_line(world, Hour(0))
    settle_old(world)
    assert "click/date=1970-01-01/hour=00/_SUCCESS" in world.storage.content("click")
    assert verify_bucket(world.storage, "click", Hour(0)).findings == []
