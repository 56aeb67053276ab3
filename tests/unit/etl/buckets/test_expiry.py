"""Removal of old buckets: which days, in which order, and what is left when a process dies."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bucket_chains import close_hours, hours_of
from tests.support.buckets import TYPE
from tests.support.interrupted_storage import InterruptedStorage, Killed
from tests.support.memory_storage import MemoryStorage

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER
from hourmark_etl.buckets.expiry import (
    ExpiryPlan,
    first_kept_date,
    plan_expiry,
    remove_day,
)
from hourmark_etl.buckets.reader import (
    BucketRemoved,
    NotClosed,
    find_manifest,
    list_hours,
    read_manifest,
    read_marker,
)
from hourmark_etl.buckets.tombstones import BadTombstone, find_tombstone, read_removed_buckets
from hourmark_etl.buckets.verify import BucketFault, find_gaps, verify_bucket
from hourmark_etl.recovery.storage_scan import read_chain
from hourmark_etl.storage import Storage

HOURS = hours_of(
    "2026-11-01T22", "2026-11-01T23", "2026-11-02T00", "2026-11-02T05", "2026-11-03T00"
)
DAYS = 10
DAY_MS = 86_400_000
NOW_MS = Hour.parse("2026-11-13T12").start_s * 1000  # 2026-11-03 is the oldest day to keep


def _plan(storage: Storage, days: int = DAYS, now_ms: int = NOW_MS) -> ExpiryPlan:
    return plan_expiry(storage, TYPE, days, 3600, now_ms)


def _expire(storage: Storage, now_ms: int = NOW_MS) -> list[str]:
    plan = _plan(storage, now_ms=now_ms)
    for day in plan.expired:
        remove_day(storage, plan, day, now_ms, "me@here")
    return [day.date for day in plan.expired]


def _findings(storage: Storage) -> list[str]:
    hours = sorted({*list_hours(storage, TYPE, 3600), *read_removed_buckets(storage, TYPE, 3600)})
    reports = [verify_bucket(storage, TYPE, hour) for hour in hours]
    return [
        str(finding)
        for finding in (
            *(finding for report in reports for finding in report.findings),
            *find_gaps(TYPE, hours, reports),
        )
    ]


def test_removed_buckets_are_gone_and_their_chain_is_whole() -> None:
    storage = MemoryStorage()
    markers = close_hours(storage, HOURS)
    before = read_chain(storage, TYPE, 3600)
    assert _expire(storage) == ["2026-11-01", "2026-11-02"]
    assert list_hours(storage, TYPE, 3600) == HOURS[-1:]
    assert [e.name for e in storage.list(TYPE)] == ["_removed", "date=2026-11-03"]
    assert _findings(storage) == []
    assert read_chain(storage, TYPE, 3600) == before, "a rebuilt ledger has all of them"
    tombstone = find_tombstone(storage, TYPE, "2026-11-02")
    assert tombstone is not None
    assert (tombstone.setting, tombstone.days) == (f"etl.retention_days.{TYPE}", DAYS)
    assert (tombstone.removed_at_ms, tombstone.removed_by) == (NOW_MS, "me@here")
    entry = tombstone.find_bucket(str(HOURS[2]))
    assert entry is not None and entry.marker.encode() == markers[HOURS[2]]
    assert _expire(storage) == []


def test_a_removed_bucket_is_not_closed_and_says_why() -> None:
    storage = MemoryStorage()
    close_hours(storage, HOURS)
    _expire(storage)
    with pytest.raises(BucketRemoved, match=r"closed as proved with 2 events, and was removed at"):
        read_manifest(storage, TYPE, HOURS[0])
    assert find_manifest(storage, TYPE, HOURS[0]) is None
    with pytest.raises(NotClosed) as skipped:
        read_manifest(storage, TYPE, Hour.parse("2026-11-02T01"))
    assert not isinstance(skipped.value, BucketRemoved), "it never had a bucket"


def test_a_plan_changes_nothing() -> None:
    storage = MemoryStorage()
    close_hours(storage, HOURS)
    before = storage.snapshot()
    assert [len(day.buckets) for day in _plan(storage).expired] == [2, 2]
    assert storage.snapshot() == before


@pytest.mark.parametrize(
    ("now", "days", "kept"),
    [
        ("2026-11-13T00", 10, "2026-11-03"),
        ("2026-11-12T23", 10, "2026-11-02"),
        ("2026-11-13T00", 1, "2026-11-12"),
        ("1970-01-02T00", 10, "1970-01-01"),
    ],
)
def test_a_day_is_kept_until_its_last_event_is_older(now: str, days: int, kept: str) -> None:
    assert first_kept_date(Hour.parse(now).start_s * 1000, days) == kept


def test_the_last_closed_bucket_is_kept_at_any_age() -> None:
    storage = MemoryStorage()
    close_hours(storage, HOURS)
    assert _expire(storage, NOW_MS + 1000 * DAY_MS) == ["2026-11-01", "2026-11-02"]
    assert list_hours(storage, TYPE, 3600) == HOURS[-1:]


def test_a_type_without_folder_has_nothing_to_remove() -> None:
    assert _plan(MemoryStorage()).expired == ()


def test_a_folder_without_marker_stops_the_removal() -> None:
    storage = MemoryStorage()
    close_hours(storage, HOURS)
    storage.delete(f"{HOURS[1].bucket_path(TYPE)}/{MARKER}")
    with pytest.raises(NotClosed):
        _plan(storage)


@pytest.mark.parametrize("lost", range(len(HOURS) - 1))
def test_a_lost_bucket_stops_the_removal(lost: int) -> None:
    storage = MemoryStorage()
    close_hours(storage, HOURS)
    storage.delete(HOURS[lost].bucket_path(TYPE))
    if lost == 0:  # the chain may begin anywhere: older buckets may have been deleted by hand
        assert [day.date for day in _plan(storage).expired] == ["2026-11-01", "2026-11-02"]
        return
    with pytest.raises(Finding, match=r"does not refer to the marker of|no bucket of the type"):
        _plan(storage)


def test_a_bucket_of_another_chain_before_removed_days_stops_the_removal() -> None:
    storage = MemoryStorage()
    close_hours(storage, HOURS)
    _expire(storage)
    close_hours(storage, hours_of("2026-10-01T00"))
    with pytest.raises(Finding, match="2026-11-01T22 does not refer to the marker of 2026-10-01"):
        _plan(storage)


@pytest.mark.parametrize(
    "restored", [("2026-11-01",), ("2026-11-02",), ("2026-11-01", "2026-11-02")]
)
def test_restored_days_can_be_removed_again(restored: tuple[str, ...]) -> None:
    storage = MemoryStorage()
    close_hours(storage, HOURS)
    files = storage.content(TYPE)
    _expire(storage)
    for date in restored:
        for name, content in files.items():
            if f"date={date}" in name:
                storage.write_new(name, content)
        storage.delete(f"{TYPE}/_removed/{date}.json")
    assert _findings(storage) == []
    assert _expire(storage) == [*restored]
    assert _findings(storage) == [] and list_hours(storage, TYPE, 3600) == HOURS[-1:]


def test_later_days_follow_the_tombstone() -> None:
    storage = MemoryStorage()
    close_hours(storage, [*HOURS, *hours_of("2026-11-04T00", "2026-11-05T00")])
    assert _expire(storage) == ["2026-11-01", "2026-11-02"]
    assert _expire(storage, NOW_MS + DAY_MS) == ["2026-11-03"]
    assert _findings(storage) == []


def test_a_damaged_tombstone_is_reported_and_nothing_is_removed() -> None:
    storage = MemoryStorage()
    close_hours(storage, [*HOURS, *hours_of("2026-11-04T00")])
    _expire(storage)
    storage.damage(f"{TYPE}/_removed/2026-11-02.json")
    with pytest.raises(BadTombstone, match="restore the file from a copy"):
        _plan(storage, now_ms=NOW_MS + 9 * DAY_MS)
    with pytest.raises(BadTombstone):
        read_marker(storage, TYPE, HOURS[2])


def test_a_changed_marker_is_not_deleted() -> None:
    storage = InterruptedStorage(applied=True)
    close_hours(storage, HOURS)
    storage.dies_at = storage.changes  # the tombstone
    with pytest.raises(Killed):
        _expire(storage)
    storage.dies_at = None
    path = f"{HOURS[0].bucket_path(TYPE)}/{MARKER}"
    storage.delete(path)
    storage.write_new(path, b"another")
    with pytest.raises(Finding, match="differs from the marker in the tombstone"):
        _expire(storage)
    assert storage.read(path) == b"another"


def test_what_the_tombstone_does_not_name_is_not_deleted() -> None:
    storage = MemoryStorage()
    close_hours(storage, HOURS)
    plan = _plan(storage)
    storage.write_new(f"{TYPE}/date=2026-11-01/hour=07/notes.txt", b"mine")
    with pytest.raises(Finding, match=r"contains hour=07, which is not in the tombstone"):
        remove_day(storage, plan, plan.expired[0], NOW_MS, "me@here")
    assert storage.read(f"{TYPE}/date=2026-11-01/hour=07/notes.txt") == b"mine"


@pytest.mark.parametrize("applied", [False, True])
def test_a_removal_is_finished_after_a_crash_at_each_step(applied: bool) -> None:
    whole = InterruptedStorage()
    close_hours(whole, HOURS)
    first = whole.changes
    _expire(whole)
    for step in range(first, whole.changes):
        storage = InterruptedStorage(applied=applied)
        markers = close_hours(storage, HOURS)
        expected = read_chain(storage, TYPE, 3600)
        storage.dies_at = step
        with pytest.raises(Killed):
            _expire(storage)
        storage.dies_at = None
        for hour, marker in markers.items():  # each is closed with its files, or removed
            try:
                assert read_marker(storage, TYPE, hour) == marker
            except BucketRemoved as error:
                assert error.bucket.marker.encode() == marker
        assert read_chain(storage, TYPE, 3600) == expected
        assert all(BucketFault.UNFINISHED_REMOVAL in found for found in _findings(storage))
        _expire(storage)
        assert _findings(storage) == []
        assert storage.snapshot().files.keys() == whole.snapshot().files.keys()


def test_an_unfinished_removal_of_a_day_that_is_kept_now_is_not_continued() -> None:
    storage = InterruptedStorage(applied=True)
    markers = close_hours(storage, HOURS)
    storage.dies_at = storage.changes + 1  # the marker of the first bucket
    with pytest.raises(Killed):
        _expire(storage)
    storage.dies_at = None
    assert _plan(storage, days=30).expired == (), "the retention was extended"
    for hour in HOURS[1:]:
        assert storage.read(f"{hour.bucket_path(TYPE)}/{MARKER}") == markers[hour]
    assert _expire(storage) == ["2026-11-01", "2026-11-02"]
    assert _findings(storage) == []


@pytest.mark.parametrize(("first", "second"), [(10, 9), (9, 10)])
def test_a_changed_retention_removes_the_days_that_are_older_now(first: int, second: int) -> None:
    storage = MemoryStorage()
    close_hours(storage, [*HOURS, *hours_of("2026-11-04T00", "2026-11-05T00")])
    for days in (first, second):
        plan = _plan(storage, days=days)
        for day in plan.expired:
            remove_day(storage, plan, day, NOW_MS, "me@here")
    tombstone = find_tombstone(storage, TYPE, "2026-11-03")
    assert tombstone is not None and tombstone.days == 9
    assert _findings(storage) == []
    assert list_hours(storage, TYPE, 3600) == hours_of("2026-11-04T00", "2026-11-05T00")


def test_two_processes_may_remove_the_same_day() -> None:
    storage = MemoryStorage()
    close_hours(storage, HOURS)
    first, second = _plan(storage), _plan(storage)
    remove_day(storage, first, first.expired[0], NOW_MS, "me@here")
    remove_day(storage, second, second.expired[0], NOW_MS + 5, "you@there")
    tombstone = find_tombstone(storage, TYPE, "2026-11-01")
    assert tombstone is not None and tombstone.removed_by == "me@here"
    assert list_hours(storage, TYPE, 3600) == HOURS[2:]


@given(
    hours=st.sets(st.integers(0, 6 * 24), min_size=1, max_size=8),
    runs=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    dies=st.lists(st.integers(0, 12), max_size=3),
)
def test_any_history_of_removals_keeps_the_chain(
    hours: set[int], runs: list[int], dies: list[int]
) -> None:
    start = Hour.parse("2026-11-01T00").start_s
    storage = InterruptedStorage()
    closed = [Hour(start + hour * 3600) for hour in sorted(hours)]
    close_hours(storage, closed, events=0)
    expected = read_chain(storage, TYPE, 3600)
    for number, after in enumerate(sorted(runs)):
        now_ms = start * 1000 + (DAYS + after) * DAY_MS
        if number < len(dies):
            storage.dies_at = storage.changes + dies[number]
        with contextlib.suppress(Killed):
            _expire(storage, now_ms)
        storage.dies_at = None
        assert read_chain(storage, TYPE, 3600) == expected
        kept = first_kept_date(now_ms, DAYS)
        assert {hour for hour in closed if str(hour)[:10] >= kept} <= {
            *list_hours(storage, TYPE, 3600)
        }
    _expire(storage, start * 1000 + (DAYS + max(runs)) * DAY_MS)
    assert _findings(storage) == []
    assert closed[-1] in list_hours(storage, TYPE, 3600)
