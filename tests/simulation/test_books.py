"""The books add up after any history: whatever was delayed, doubled, cut anew, killed, waived or
forced on the way.
"""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest
from tests.simulation.histories import History
from tests.simulation.test_histories import HISTORY, PLAIN, SEED, seconds_max
from tests.support.closing import hour, manifest, send, send_otherwise, settle, until
from tests.support.simulator.truth import FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.records.hours import Hour
from hourmark_etl.ledger.overrides import put_override
from hourmark_etl.ledger.partitions.offset_gaps import accepted_gaps
from hourmark_etl.operators.reconciled_sources import (
    ReconciliationWindow,
    known_origin_hours,
    read_type_facts,
)
from hourmark_etl.operators.reconciliation import ReconciliationStage, reconcile_type

HISTORIES = max(12, int(os.environ.get("HOURMARK_HISTORIES", "120")) // 10)
ALL = ReconciliationWindow(None, 0, 1 << 62)


def check(world: World) -> int:
    """How many hours have books; all must add up, but for those that a range was read into in two
    ways: there they must not be taken for right where one reading never got its record
    (docs/concepts/delivery-guarantees.md).
    """
    in_two_ways = {
        (e.event_type, str(Hour.containing(e.time_ms)))
        for x in world.producers.ranges
        if x.otherwise
        for e in (*x.events, *x.otherwise)
    }
    facts, files = read_type_facts(world.database, FIRST_HOUR.length_s, ALL)
    given_up = [
        gap.what for gap in accepted_gaps(world.database)
    ]  # of a staged file: in no group any more, and named
    assert [file for file in files if not any(file.path in what for what in given_up)] == []
    hours = 0
    for of_type in facts:
        books = reconcile_type(of_type, known_origin_hours(of_type, ALL))
        wrong = [
            d
            for d in books.differences
            if (d.event_type, d.hour) not in in_two_ways or d.stage is not ReconciliationStage.PROOF
        ]
        assert wrong == [], "\n".join(map(str, wrong))
        for book in books.hours:
            assert book.staged == book.closed + book.open + book.duplicates_removed
            hours += 1
    return hours


@pytest.mark.slow
@pytest.mark.timeout(seconds_max(HISTORIES))  # a red history has to be made small, too
def test_the_books_add_up_at_any_time(ledgers: Path, template: Path) -> None:
    print(f"seed {SEED} (HOURMARK_SEED repeats it)")
    hours = 0

    @hypothesis.seed(SEED)
    @hypothesis.settings(PLAIN, max_examples=HISTORIES)
    @hypothesis.given(HISTORY)
    def holds(history: History) -> None:
        nonlocal hours
        world = World(ledgers, template)
        try:
            for number, (name, draw) in enumerate(history):
                world.clock.advance(0.01)
                world.act(name, draw)
                if number % 20 == 19:
                    check(world)
            world.drain()
            hours += check(world)
        finally:
            world.end()

    holds()
    assert hours > HISTORIES


def test_a_late_second_reading_that_never_got_its_record_is_named(
    ledgers: Path, template: Path
) -> None:
    """Its service died; the hour that lists it waits for an override, and the books of its own hour
    say what is too many.
    """
    world = World(ledgers, template)
    try:
        start_ms = world.clock.now_ms()
        send(world, ["click"], start_ms)
        until(world, FIRST_HOUR)
        settle(world)
        send_otherwise(world, [("click", start_ms + 1)], recorded=False)
        until(world, hour(1))
        settle(world)
        put_override(
            world.database, "click", hour(1), "both are wanted", "ada", world.clock.now_ms()
        )
        settle(world)
        assert manifest(world, "click", hour(1)).grade.value == "forced"
        facts, _ = read_type_facts(world.database, FIRST_HOUR.length_s, ALL)
        (named,) = [
            d
            for of_type in facts
            for d in reconcile_type(of_type, known_origin_hours(of_type, ALL)).differences
        ]
        assert (named.event_type, named.hour, named.stage) == (
            "click",
            str(FIRST_HOUR),
            ReconciliationStage.PROOF,
        )
        assert (
            "2 events are in closed buckets, but only 1 are promised and 0 recorded as unaudited"
            in named.detail
        )
    finally:
        world.end()
