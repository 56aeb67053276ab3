"""Copies of buckets: verified, never over anything, and continued where a run was interrupted."""

from __future__ import annotations

import pytest
from tests.support.bucket_chains import close_hours, hours_of
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
from hourmark_etl.buckets.expiry import plan_expiry, remove_day
from hourmark_etl.buckets.reader import BucketRemoved, list_hours, read_marker
from hourmark_etl.buckets.verify import verify_bucket
from hourmark_etl.recovery.storage_scan import read_chain
from hourmark_etl.storage import Storage

HOURS = hours_of("2026-11-01T22", "2026-11-01T23", "2026-11-02T05", "2026-11-03T00")


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
    now_ms = Hour.parse("2026-11-05T00").start_s * 1000
    plan = plan_expiry(source, TYPE, 2, 3600, now_ms)
    for day in plan.expired:
        remove_day(source, plan, day, now_ms, "me@here")
    assert _copy(source, target) == [CopyOutcome.COPIED]
    with pytest.raises(BucketRemoved):
        read_marker(target, TYPE, HOURS[0])
    assert read_chain(target, TYPE, 3600) == read_chain(source, TYPE, 3600)
    assert verify_bucket(target, TYPE, HOURS[-1]).findings == ()


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
