"""The books add up after any history: whatever was delayed, doubled, cut anew, killed, excused or forced on the way."""

from __future__ import annotations

import os
import random
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck

from etl.book_sources import Window, facts_of, origins_of
from etl.books import books_of
from etl.ledger.edge import accepted_holes
from tests.property.histories import History
from tests.property.test_histories import HISTORY
from tests.property.truth import FIRST_HOUR
from tests.property.world import World

HISTORIES = max(12, int(os.environ.get("HOURMARK_HISTORIES", "120")) // 10)
ALL = Window(None, 0, 1 << 62)
SEED = int(os.environ.get("HOURMARK_SEED", str(random.randrange(1 << 32))))


def check(world: World) -> int:
    """How many hours have books; all must add up."""
    facts, files = facts_of(world.database, FIRST_HOUR.length_s, ALL)
    given_up = [hole.what for hole in accepted_holes(world.database)]  # of a staged file: in no group any more, and named
    assert [file for file in files if not any(file.path in what for what in given_up)] == []
    hours = 0
    for of_type in facts:
        books = books_of(of_type, origins_of(of_type, ALL))
        assert books.differences == (), "\n".join(map(str, books.differences))
        for book in books.hours:
            assert book.staged == book.closed + book.open + book.duplicates_removed
            hours += 1
    return hours


def test_the_books_add_up_at_any_time(ledgers: Path, template: Path) -> None:
    print(f"seed {SEED} (HOURMARK_SEED repeats it)")
    hours = 0

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=HISTORIES, deadline=None, database=None, print_blob=False, suppress_health_check=list(HealthCheck)
    )
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
