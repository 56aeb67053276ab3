"""Late events of an hour whose bucket was removed by retention."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.bucket_chains import remove_bucket
from tests.support.bucket_world import FIRST, World, hour_at, some_ids
from tests.support.memory_storage import MemoryStorage

from hourmark.errors import Finding
from hourmark_etl.buckets.tombstones import date_of, tombstone_path
from hourmark_etl.ids.removed_buckets import separate_removed
from hourmark_etl.ledger.closed import ClosedBucket, closed_buckets

LATER = hour_at(1)
IDS = some_ids(5)


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    made = MemoryStorage()
    yield made
    made.forget()


@pytest.fixture
def world(tmp_path: Path, storage: MemoryStorage) -> World:
    return World(tmp_path, storage)


def _close_and_remove(world: World, *, indexed: bool) -> None:
    world.close(FIRST, world.stage(IDS), indexed=indexed)
    remove_bucket(world.storage, "click", FIRST)


def _closed(world: World) -> tuple[ClosedBucket, ...]:
    return closed_buckets(world.database, {"click": [FIRST.start_s]}, 3600)["click"]


def test_late_events_of_a_removed_bucket_are_kept(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    _close_and_remove(world, indexed=False)
    manifest = world.close(LATER, world.stage([*IDS, *some_ids(2, LATER)]))
    assert manifest.late == {str(FIRST): 5}
    assert f"removed by retention: type=click hour={FIRST}" in caplog.text


def test_the_index_still_knows_the_events_of_a_removed_bucket(world: World) -> None:
    _close_and_remove(world, indexed=True)
    manifest = world.close(LATER, world.stage([*IDS[:3], *some_ids(2, LATER)]))
    assert (manifest.late, manifest.duplicates_removed, manifest.events) == ({}, 3, 2)


def test_a_bucket_without_tombstone_is_lost_and_not_removed(world: World) -> None:
    world.close(FIRST, world.stage(IDS), indexed=False)
    world.storage.delete(FIRST.bucket_path("click"))
    with pytest.raises(Finding, match="a closed bucket lists the file"):
        world.close(LATER, world.stage(IDS))


def test_a_damaged_tombstone_does_not_make_a_bucket_removed(
    world: World, storage: MemoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    _close_and_remove(world, indexed=False)
    storage.damage(tombstone_path("click", date_of(FIRST)))
    found = separate_removed(storage, _closed(world), 3600)
    assert (len(found.searchable), found.removed) == (1, ())
    assert "restore the file from a copy" in caplog.text


def test_files_are_needed_where_the_index_is_not_enough(world: World) -> None:
    _close_and_remove(world, indexed=True)
    closed = _closed(world)
    assert separate_removed(world.storage, closed, 3600).searchable == closed
    found = separate_removed(world.storage, closed, 3600, needs_files=True)
    assert found.removed == closed and found.unknown_hours == {FIRST}


def test_a_bucket_whose_removal_has_not_reached_it_is_searched(
    world: World, storage: MemoryStorage
) -> None:
    world.close(FIRST, world.stage(IDS), indexed=False)
    before = storage.content(FIRST.bucket_path("click"))
    remove_bucket(storage, "click", FIRST)
    for name, content in before.items():  # as after a crash: the tombstone, and all files
        storage.write_new(name, content)
    assert separate_removed(storage, _closed(world), 3600).removed == ()
    manifest = world.close(LATER, world.stage([*IDS[:3], *some_ids(2, LATER)]))
    assert (manifest.late, manifest.duplicates_removed) == ({}, 3)
