"""A closer goes on after old buckets were removed: late events and duplicates of removed hours, lost
indexes, and removals beside it.
"""

from __future__ import annotations

from typing import BinaryIO

import pytest
from sqlalchemy import delete
from tests.support.bucket_chains import expire_days
from tests.support.closing import (
    append,
    frontier,
    manifest,
    override,
    send_old,
    settle,
    wait_of,
)
from tests.support.rebuilding import lose_ledger
from tests.support.simulator.truth import FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade, Manifest
from hourmark_etl.buckets.reader import list_hours, read_manifest
from hourmark_etl.ids.index_files import list_index_files
from hourmark_etl.ledger import tables
from hourmark_etl.recovery.check import check_markers
from hourmark_etl.recovery.storage_scan import read_chain
from hourmark_etl.storage.folders import INDEX_FOLDER

LAST = Hour(FIRST_HOUR.start_s + 20 * 3600)  # on the next day
NEXT = LAST.next()


@pytest.fixture
def world(world: World) -> World:
    """Hours of two days are closed, the first with an event; its day is not removed yet."""
    send_old(world, FIRST_HOUR)
    settle(world, LAST)
    assert manifest(world).events == 1 and frontier(world).hour == NEXT
    world.judge.check = lambda: None  # type: ignore[method-assign]  # it knows no removal
    return world


def remove_first_day(world: World) -> None:
    now_ms = world.clock.now_ms() + 2 * 86_400_000
    assert expire_days(world.storage, "click", now_ms, days=1) == [str(FIRST_HOUR)[:10]]


def forget_index(world: World) -> None:
    """As after `etl.index_hours`: neither the ledger nor the storage has an index."""
    for path in list_index_files(world.storage):
        world.storage.delete(path)
    with world.database.transaction() as connection:
        connection.execute(delete(tables.id_indexes))


def send_again(world: World) -> None:
    """The first range once more, as after a response that was lost: a copy of its record in Kafka."""
    sent = world.producers.ranges[0]
    append(world, sent, sent.events)
    world.producers.promise(sent, sent.events)


def closed(world: World, hour: Hour = NEXT) -> Manifest:
    return read_manifest(world.storage, "click", hour)


def test_late_events_of_a_removed_hour_are_in_the_next_bucket(world: World) -> None:
    remove_first_day(world)
    send_old(world, FIRST_HOUR)
    settle(world, NEXT)
    assert closed(world).late == {str(FIRST_HOUR): 1}
    assert closed(world).grade is Grade.PROVED
    assert not list(check_markers(world.database, world.storage, world.frontiers(), {}))


def test_the_index_drops_duplicates_of_a_removed_hour(world: World) -> None:
    remove_first_day(world)
    send_again(world)
    send_old(world, FIRST_HOUR)
    settle(world, NEXT)
    assert (closed(world).late, closed(world).duplicates_removed) == ({str(FIRST_HOUR): 1}, 1)
    assert closed(world).grade is Grade.PROVED


def test_without_an_index_a_duplicate_of_a_removed_hour_is_kept_once(world: World) -> None:
    forget_index(world)
    remove_first_day(world)
    send_again(world)
    settle(world, NEXT)
    assert (closed(world).late, closed(world).grade) == ({str(FIRST_HOUR): 1}, Grade.PROVED)
    send_again(world)
    settle(world, NEXT.next())
    found = closed(world, NEXT.next())
    assert (found.late, found.duplicates_removed) == ({}, 1), "the later bucket has it"


def test_a_lost_index_of_a_removed_hour_needs_an_operator(world: World) -> None:
    remove_first_day(world)
    world.storage.delete(INDEX_FOLDER)  # the ledger still names its files
    send_old(world, FIRST_HOUR)
    settle(world, NEXT)
    assert frontier(world).hour == NEXT and wait_of(world).phase == "unwritable"
    world.clock.advance(1)
    override(world)
    settle(world)
    assert closed(world).late == {str(FIRST_HOUR): 1}
    assert closed(world).grade is Grade.FORCED


def test_a_bucket_that_is_removed_while_it_is_searched_delays_its_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_index(world)
    send_old(world, FIRST_HOUR)
    path, real = f"{FIRST_HOUR.bucket_path('click')}/part-", world.storage.open
    removed = list[str]()

    def opened(name: str, *, size: int | None = None) -> BinaryIO:
        if name.startswith(path) and not removed:
            removed.append(name)
            remove_first_day(world)
        return real(name, size=size)

    monkeypatch.setattr(world.storage, "open", opened)
    settle(world, NEXT)
    assert removed and frontier(world).hour == NEXT
    world.clock.advance(60)
    settle(world)
    assert closed(world).late == {str(FIRST_HOUR): 1}
    assert closed(world).grade is Grade.PROVED


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_ledger_rebuilt_after_a_removal_goes_on(world: World, step: str) -> None:
    before = read_chain(world.storage, "click", 3600)
    if step == "before":
        send_old(world, FIRST_HOUR)
    remove_first_day(world)
    lose_ledger(world)
    assert read_chain(world.storage, "click", 3600) == before
    assert frontier(world).hour == NEXT
    if step == "after":
        send_old(world, FIRST_HOUR)
    send_again(world)
    settle(world, NEXT)
    assert closed(world).late == {str(FIRST_HOUR): 1}
    assert closed(world).duplicates_removed == 2, "the copy, and the staged row of its bucket"
    assert not list(check_markers(world.database, world.storage, world.frontiers(), {}))
    assert list_hours(world.storage, "click", 3600)[-1] == NEXT
