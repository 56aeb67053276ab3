"""Removal and copies of buckets on every storage: the order of steps rests on its promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.bucket_chains import close_hours, expire_days, hours_of
from tests.support.buckets import TYPE
from tests.support.memory_storage import MemoryStorage

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER
from hourmark_etl.buckets.copying import BucketCopier, CopyOutcome
from hourmark_etl.buckets.reader import BucketRemoved, list_dates, list_hours, read_marker
from hourmark_etl.buckets.tombstones import read_removed_buckets
from hourmark_etl.buckets.verify import find_gaps, verify_bucket
from hourmark_etl.recovery.storage_scan import read_chain
from hourmark_etl.storage import FolderStorage, LocalDisk, Storage, list_if_exists

HOURS = hours_of("2026-11-01T22", "2026-11-01T23", "2026-11-02T05", "2026-11-03T00")
NOW_MS = Hour.parse("2026-11-05T00").start_s * 1000  # with 2 days, only the last one is kept


@pytest.fixture(params=["local", "memory"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FolderStorage]:
    """A second root, which is not a folder of the first."""
    made = LocalDisk(tmp_path / "other") if request.param == "local" else MemoryStorage()
    yield made
    if isinstance(made, MemoryStorage):
        made.forget()


def assert_intact(storage: Storage) -> None:
    removed = read_removed_buckets(storage, TYPE, 3600)
    hours = sorted({*list_hours(storage, TYPE, 3600), *removed})
    reports = [verify_bucket(storage, TYPE, hour) for hour in hours]
    assert [str(f) for report in reports for f in report.findings] == []
    assert find_gaps(TYPE, hours, reports) == []


def copy(source: Storage, target: FolderStorage, run: str) -> list[CopyOutcome]:
    copier = BucketCopier(source, target, run)
    copier.copy_tombstones(TYPE)
    hours = list_hours(source, TYPE, 3600)
    outcomes = [outcome for *_, outcome in copier.copy_buckets(TYPE, hours)]
    copier.delete_temporary_files()
    assert not list_if_exists(target, copier.temporary_folder)
    return outcomes


def test_old_days_are_removed_and_leave_a_tombstone(storage: Storage) -> None:
    close_hours(storage, HOURS)
    before = read_chain(storage, TYPE, 3600)
    assert expire_days(storage, TYPE, NOW_MS, days=2) == ["2026-11-01", "2026-11-02"]
    assert list_dates(storage, TYPE) == ["2026-11-03"], "no empty folder is left"
    assert read_chain(storage, TYPE, 3600) == before
    with pytest.raises(BucketRemoved):
        read_marker(storage, TYPE, HOURS[0])
    assert_intact(storage)
    assert expire_days(storage, TYPE, NOW_MS, days=2) == []


def test_a_foreign_file_in_a_removed_day_is_kept(storage: Storage) -> None:
    close_hours(storage, HOURS)
    storage.write_new(f"{TYPE}/date=2026-11-01/notes.txt", b"mine")
    with pytest.raises(Finding, match=r"notes\.txt"):
        expire_days(storage, TYPE, NOW_MS, days=2)
    assert storage.read(f"{TYPE}/date=2026-11-01/notes.txt") == b"mine"
    storage.delete(f"{TYPE}/date=2026-11-01/notes.txt")
    # On a storage with folders, the empty folder of the first day is left, and removed now.
    assert expire_days(storage, TYPE, NOW_MS, days=2)[-1] == "2026-11-02"
    assert list_dates(storage, TYPE) == ["2026-11-03"]
    assert_intact(storage)


def test_buckets_are_copied_from_it(storage: Storage, other: FolderStorage) -> None:
    close_hours(storage, HOURS)
    assert copy(storage, other, "out") == [CopyOutcome.COPIED] * 4
    assert_intact(other)


def test_buckets_are_copied_from_and_to_it(folders: FolderStorage, other: FolderStorage) -> None:
    close_hours(folders, HOURS)
    assert copy(folders, other, "out") == [CopyOutcome.COPIED] * 4
    expire_days(folders, TYPE, NOW_MS, days=2)
    folders.delete(HOURS[-1].bucket_path(TYPE))
    assert copy(other, folders, "back") == [CopyOutcome.REMOVED] * 3 + [CopyOutcome.COPIED]
    marker = f"{HOURS[-1].bucket_path(TYPE)}/{MARKER}"
    assert folders.read(marker) == other.read(marker)
    assert_intact(folders)
