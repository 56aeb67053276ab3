"""Copies of buckets: verified, never over anything, and continued where a run was interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest
from tests.support.bucket_chains import close_hours, expire_days, hours_of
from tests.support.buckets import TYPE
from tests.support.interrupted_storage import InterruptedStorage, Killed
from tests.support.memory_storage import MemoryStorage

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER
from hourmark_etl.buckets.copying import (
    BucketCopier,
    CopyOutcome,
    copy_folder,
    list_earlier_runs,
)
from hourmark_etl.buckets.reader import BucketRemoved, list_hours, read_marker
from hourmark_etl.buckets.verify import verify_bucket
from hourmark_etl.recovery.storage_scan import read_chain
from hourmark_etl.storage import Storage

HOURS = hours_of("2026-11-01T22", "2026-11-01T23", "2026-11-02T05", "2026-11-03T00")
NOW_MS = Hour.parse("2026-11-05T00").start_s * 1000  # with 2 days, only the last one is kept


def _copy(source: Storage, target: Storage, run: str = "run") -> list[CopyOutcome]:
    copier = BucketCopier(source, target, run)
    copier.copy_tombstones(TYPE)
    outcomes = [
        outcome for *_, outcome in copier.copy_buckets(TYPE, list_hours(source, TYPE, 3600))
    ]
    copier.delete_temporary_files()
    return outcomes


def _buckets(storage: MemoryStorage) -> dict[str, bytes]:
    return storage.content(TYPE)


@pytest.fixture
def source() -> MemoryStorage:
    storage = MemoryStorage()
    close_hours(storage, HOURS)
    return storage


def test_a_copy_has_the_same_bytes_and_chain(source: MemoryStorage) -> None:
    target = MemoryStorage()
    assert _copy(source, target) == [CopyOutcome.COPIED] * 4
    assert _buckets(target) == _buckets(source)
    assert read_chain(target, TYPE, 3600) == read_chain(source, TYPE, 3600)
    assert not any(verify_bucket(target, TYPE, hour).findings for hour in HOURS)
    assert _copy(source, target, "again") == [CopyOutcome.PRESENT] * 4
    assert list_earlier_runs(target) == []


def test_removed_buckets_are_copied_as_tombstones(source: MemoryStorage) -> None:
    target = MemoryStorage()
    expire_days(source, TYPE, NOW_MS, days=2)
    assert _copy(source, target) == [CopyOutcome.COPIED]
    with pytest.raises(BucketRemoved):
        read_marker(target, TYPE, HOURS[0])
    assert read_chain(target, TYPE, 3600) == read_chain(source, TYPE, 3600)
    assert verify_bucket(target, TYPE, HOURS[-1]).findings == ()


def test_a_target_with_a_longer_retention_keeps_its_buckets(source: MemoryStorage) -> None:
    target = MemoryStorage()
    _copy(source, target)
    before = _buckets(target)
    assert expire_days(source, TYPE, NOW_MS, days=2) == ["2026-11-01", "2026-11-02"]
    assert _copy(source, target, "again") == [CopyOutcome.PRESENT]
    assert _buckets(target) == before, "no tombstone either, as nothing was removed there"


def test_what_the_target_removed_by_its_own_retention_is_not_copied_again(
    source: MemoryStorage,
) -> None:
    target = MemoryStorage()
    _copy(source, target)
    expire_days(target, TYPE, NOW_MS, days=2)
    before = _buckets(target)
    removed, present = CopyOutcome.REMOVED, CopyOutcome.PRESENT
    assert _copy(source, target, "again") == [removed, removed, removed, present]
    expire_days(source, TYPE, NOW_MS + 5, days=2)
    assert _copy(source, target, "third") == [present]
    assert _buckets(target) == before, "each has its own tombstone of the same buckets"


@pytest.mark.parametrize("copied", range(5))
@pytest.mark.parametrize("retention", [None, 3, 30])
def test_a_copy_goes_on_after_the_source_removed_what_was_not_copied(
    source: MemoryStorage, copied: int, retention: int | None
) -> None:
    target, expected = MemoryStorage(), read_chain(source, TYPE, 3600)
    copier = BucketCopier(source, target, "first")
    assert len(list(copier.copy_buckets(TYPE, HOURS[:copied]))) == copied
    expire_days(source, TYPE, NOW_MS, days=2)
    _copy(source, target, "second")
    assert read_chain(target, TYPE, 3600) == expected
    assert list_hours(target, TYPE, 3600) == sorted({*HOURS[:copied], HOURS[-1]})
    if retention is not None:  # what the target still has is older than 3 days, but not than 30
        expire_days(target, TYPE, NOW_MS + 86_400_000, days=retention)
        assert read_chain(target, TYPE, 3600) == expected
        kept = HOURS[:copied] if retention == 30 else []
        assert list_hours(target, TYPE, 3600) == sorted({*kept, HOURS[-1]})


@pytest.mark.parametrize("step", range(7))
def test_buckets_that_the_source_removes_while_they_are_copied_become_tombstones(
    source: MemoryStorage, step: int
) -> None:
    class Expiring(MemoryStorage):
        created = 0

        @contextmanager
        def create(self, path: str, *, unpublished: bool = False) -> Iterator[BinaryIO]:
            with super().create(path, unpublished=unpublished) as file:
                if self.created == step:
                    expire_days(source, TYPE, NOW_MS, days=2)
                self.created += 1
                yield file

    target, expected = Expiring(), read_chain(source, TYPE, 3600)
    _copy(source, target)
    assert read_chain(target, TYPE, 3600) == expected
    assert not any(verify_bucket(target, TYPE, hour).findings for hour in HOURS)


def test_a_plan_of_a_copy_changes_nothing(source: MemoryStorage) -> None:
    target = MemoryStorage()
    expire_days(source, TYPE, NOW_MS, days=3)
    list(BucketCopier(source, target, "first").copy_buckets(TYPE, HOURS[2:3]))
    before = target.snapshot()
    copier = BucketCopier(source, target, "plan")
    assert copier.list_missing_tombstones(TYPE) == ["2026-11-01"]
    assert [outcome for *_, outcome in copier.plan_buckets(TYPE, HOURS[1:])] == [
        CopyOutcome.PRESENT,
        CopyOutcome.COPIED,
    ], "the removed one is not listed"
    assert target.snapshot() == before


def test_a_damaged_file_of_the_source_is_not_published(source: MemoryStorage) -> None:
    target = MemoryStorage()
    source.damage(f"{HOURS[1].bucket_path(TYPE)}/part-00000.avro")
    with pytest.raises(Finding, match="but the marker states"):
        _copy(source, target)
    assert list_hours(target, TYPE, 3600) == HOURS[:1]


def test_what_the_target_stores_otherwise_is_not_published(source: MemoryStorage) -> None:
    class Corrupting(MemoryStorage):
        def write_new(self, path: str, content: bytes, *, unpublished: bool = False) -> None:
            damaged = content[:-1] + b"x" if path.endswith(".avro") else content
            super().write_new(path, damaged, unpublished=unpublished)

    target = Corrupting()
    with pytest.raises(Finding, match=r"_copies/run/.* but the marker states"):
        _copy(source, target)
    assert list_hours(target, TYPE, 3600) == []


@pytest.mark.parametrize("name", [MARKER, "notes.txt"])
def test_nothing_on_the_target_is_replaced(source: MemoryStorage, name: str) -> None:
    target = MemoryStorage()
    path = f"{HOURS[1].bucket_path(TYPE)}/{name}"
    target.write_new(path, b"other")
    with pytest.raises(Finding, match="nothing was replaced"):
        _copy(source, target)
    assert target.read(path) == b"other" and list_hours(target, TYPE, 3600) == HOURS[:2]


def test_a_bucket_of_the_target_that_lacks_a_file_is_reported(source: MemoryStorage) -> None:
    target = MemoryStorage()
    _copy(source, target)
    target.delete(f"{HOURS[1].bucket_path(TYPE)}/part-00000.avro")
    with pytest.raises(Finding, match="but its marker lists"):
        _copy(source, target)


def test_a_broken_chain_of_the_source_is_not_copied_further(source: MemoryStorage) -> None:
    target = MemoryStorage()
    source.delete(HOURS[1].bucket_path(TYPE))
    with pytest.raises(Finding, match="2026-11-02T05 does not refer to the marker of"):
        _copy(source, target)
    assert list_hours(target, TYPE, 3600) == HOURS[:1]


@pytest.mark.parametrize("applied", [False, True])
def test_an_interrupted_copy_is_a_valid_beginning_and_is_continued(
    source: MemoryStorage, applied: bool
) -> None:
    whole = InterruptedStorage()
    _copy(source, whole)
    for step in range(whole.changes):
        target = InterruptedStorage(step, applied=applied)
        with pytest.raises(Killed):
            _copy(source, target)
        target.dies_at = None
        copied = list_hours(target, TYPE, 3600)
        assert copied == HOURS[: len(copied)]
        assert not any(verify_bucket(target, TYPE, hour).findings for hour in copied)
        assert len(list_earlier_runs(target)) <= 1
        _copy(source, target, "second")
        assert _buckets(target) == _buckets(source)


def test_files_of_the_etl_are_copied_once_and_compared(source: MemoryStorage) -> None:
    target = MemoryStorage()
    source.write_new("_staging/000000000001-a/events.parquet", b"rows")
    source.write_new("_staging/000000000001-a/audit.parquet", b"more")
    assert copy_folder(source, target, "_staging") == (2, 0)
    assert copy_folder(source, target, "_staging") == (0, 2)
    assert copy_folder(source, target, "_unaudited") == (0, 0)
    target.damage("_staging/000000000001-a/events.parquet")
    with pytest.raises(Finding, match="nothing was replaced"):
        copy_folder(source, target, "_staging")
