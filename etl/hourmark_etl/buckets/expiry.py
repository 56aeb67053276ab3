"""Removes the buckets of old days, and leaves a tombstone for each day.

The order of steps makes a crash at any point safe, and each step can be repeated:

1. The tombstone of the day is created. It never replaces another one.
2. The tombstone is read back, and each marker is compared with it.
3. The marker of each bucket is deleted. From then on, the bucket is removed.
4. The folder of each bucket is deleted, then folders above it that are empty.

`plan_expiry` reads only markers and changes nothing. It refuses a type whose chain of markers is
not intact, because a tombstone would make the fault permanent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER
from hourmark.records.self_digest import software_name
from hourmark.records.tombstone import RemovedBucket, Tombstone, check_references
from hourmark_etl.buckets.reader import (
    decode_manifest,
    list_dates,
    list_hours,
    read_marker,
)
from hourmark_etl.buckets.tombstones import (
    find_tombstone,
    list_removed_dates,
    tombstone_path,
)
from hourmark_etl.storage import (
    AlreadyExists,
    NotFound,
    Storage,
    list_if_exists,
    map_concurrently,
)
from hourmark_etl.storage.paths import parent_folder

SETTING: Final = "etl.retention_days"
_DAY_S: Final = 86_400
RETENTION_MS_MIN: Final = _DAY_S * 1000  # the setting is at least one day


@dataclasses.dataclass(frozen=True, slots=True)
class ExpiredDay:
    """A day of an event type whose buckets are older than the retention of the type.

    Attributes:
        date: The day (UTC), such as `2026-11-21`.
        buckets: The buckets of the day, in ascending order.
        is_begun: Whether the day has a tombstone already, because an earlier removal did not end.
            Some of its buckets may be gone.
    """

    date: str
    buckets: tuple[RemovedBucket, ...]
    is_begun: bool = False

    @property
    def events(self) -> int:
        """Return the number of events in all buckets of the day."""
        return sum(bucket.events for bucket in self.buckets)

    @property
    def bytes(self) -> int:
        """Return the size of all files of the day, without markers."""
        return sum(bucket.bytes for bucket in self.buckets)


@dataclasses.dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """The days of an event type that can be removed.

    Attributes:
        event_type: Name of the event type.
        days: Retention of the type, in days.
        bucket_seconds: Length of a bucket in seconds.
        expired: Days to remove, in ascending order; empty if there are none.
    """

    event_type: str
    days: int
    bucket_seconds: int
    expired: tuple[ExpiredDay, ...]


def first_kept_date(now_ms: int, days: int) -> str:
    """Return the oldest day that is not expired.

    A day expires when its last event is older than the retention.

    Args:
        now_ms: Current time, Unix milliseconds.
        days: Retention in days, at least 1.

    Returns:
        The day (UTC), such as `2026-11-21`; `1970-01-01` if nothing can be expired.
    """
    start = dt.datetime.fromtimestamp(max(0, now_ms // 1000 - days * _DAY_S), dt.UTC)
    return f"{start:%Y-%m-%d}"


def plan_expiry(
    storage: Storage, event_type: str, days: int, bucket_seconds: int, now_ms: int
) -> ExpiryPlan:
    """Determine which days of an event type can be removed, without changing anything.

    The last closed bucket of a type is never removed, and therefore neither is its day. A removal
    that did not end is continued only if the day is older than the given retention.

    Args:
        storage: Storage with the buckets.
        event_type: Name of the event type.
        days: Retention in days.
        bucket_seconds: Length of a bucket in seconds.
        now_ms: Current time, Unix milliseconds.

    Returns:
        The plan; it has no days if no bucket of the type is old enough.

    Raises:
        NotClosed: A folder of an expired day has no marker.
        BadMarker: A marker of an expired day is damaged.
        BadTombstone: A tombstone is damaged.
        Finding: The chain of markers is broken.
        StorageError: Storage is unavailable or denies access.
    """
    kept_from, removed = first_kept_date(now_ms, days), list_removed_dates(storage, event_type)
    dates = list_dates(storage, event_type)
    begun = [
        ExpiredDay(date, tuple(tombstone.buckets), is_begun=True)
        for date in dates
        if date in removed
        and date < kept_from
        and (tombstone := find_tombstone(storage, event_type, date))
    ]
    remaining = [date for date in dates if date not in removed]
    old = [date for date in remaining if date < kept_from]
    read_days = map_concurrently(
        lambda date: _read_day(storage, event_type, date, bucket_seconds), old
    )
    found = [day for day in read_days if day.buckets]
    following = _first_bucket_from(storage, event_type, kept_from, remaining, bucket_seconds)
    if found and following is None:
        following = found.pop().buckets[0]
    _check_chain(storage, event_type, found, removed, following)
    return ExpiryPlan(event_type, days, bucket_seconds, (*begun, *found))


def _read_day(storage: Storage, event_type: str, date: str, bucket_seconds: int) -> ExpiredDay:
    hours = _list_day(storage, event_type, date, bucket_seconds)
    return ExpiredDay(date, tuple(_read_bucket(storage, event_type, hour) for hour in hours))


def _list_day(storage: Storage, event_type: str, date: str, bucket_seconds: int) -> list[Hour]:
    first = Hour.parse(f"{date}T00", bucket_seconds)
    last = Hour(first.start_s + _DAY_S - bucket_seconds, bucket_seconds)
    return list_hours(storage, event_type, bucket_seconds, first, last)


def _read_bucket(storage: Storage, event_type: str, hour: Hour) -> RemovedBucket:
    marker = read_marker(storage, event_type, hour)
    decode_manifest(storage, event_type, hour, marker)
    return RemovedBucket.from_marker(marker)


def _check_chain(
    storage: Storage,
    event_type: str,
    found: Sequence[ExpiredDay],
    removed: Iterable[str],
    following: RemovedBucket | None,
) -> None:
    # Days that were removed may be before, between and after the found ones: a copy has buckets
    # that the source removed later, and tombstones of days that were removed before they were
    # copied.
    days = {day.date: day.buckets for day in found}
    dates = sorted({*days, *removed})
    linked = [pair for pair in itertools.pairwise(dates) if not days.keys().isdisjoint(pair)]
    buckets_of = days | {
        date: tuple(tombstone.buckets)
        for date in {*itertools.chain.from_iterable(linked)} - days.keys()
        if (tombstone := find_tombstone(storage, event_type, date))
    }
    try:
        for buckets in days.values():
            check_references(buckets)
        for before, after in linked:
            check_references([*buckets_of[before][-1:], *buckets_of[after][:1]])
        if found and following is not None and dates[-1] in days:
            check_references([days[dates[-1]][-1], following])
    except ValueError as error:
        raise Finding(
            f"{event_type}: {error}, so no bucket of the type is removed; `hourmark bucket verify "
            f"{event_type}` lists all problems"
        ) from error


def _first_bucket_from(
    storage: Storage, event_type: str, kept_from: str, dates: Sequence[str], bucket_seconds: int
) -> RemovedBucket | None:
    # The first closed bucket that is kept. Most types have one on the first day.
    for date in dates:
        if date >= kept_from:
            for hour in _list_day(storage, event_type, date, bucket_seconds):
                return _read_bucket(storage, event_type, hour)
    return None


def remove_day(
    storage: Storage, plan: ExpiryPlan, day: ExpiredDay, now_ms: int, removed_by: str
) -> None:
    """Remove the buckets of one day, or finish a removal that was interrupted.

    Several processes may remove the same day at the same time.

    Args:
        storage: Storage with the buckets.
        plan: Plan that contains the day. Remove its days in the given order.
        day: The day to remove.
        now_ms: Current time, Unix milliseconds.
        removed_by: User and host, for the tombstone.

    Raises:
        Finding: The tombstone of the day names other buckets, a marker was changed, or the day
            contains a folder that is not in the tombstone. What the tombstone does not name is
            never deleted.
        StorageError: A storage operation failed. Repeat the call to continue.
    """
    if not day.is_begun:
        made = Tombstone(
            type=plan.event_type,
            date=day.date,
            bucket_seconds=plan.bucket_seconds,
            setting=f"{SETTING}.{plan.event_type}",
            days=plan.days,
            removed_at_ms=now_ms,
            removed_by=removed_by,
            buckets=list(day.buckets),
            software=software_name(),
        ).with_own_digest()
        # Another process may have written it, or the response may have been lost; compared below.
        with contextlib.suppress(AlreadyExists):
            storage.write_new(tombstone_path(plan.event_type, day.date), made.encode())
    stored = find_tombstone(storage, plan.event_type, day.date)
    if stored is None or tuple(stored.buckets) != day.buckets:
        raise Finding(
            f"{storage.url(tombstone_path(plan.event_type, day.date))} names other buckets than "
            f"the folder of the day contains; nothing was deleted. `hourmark bucket verify "
            f"{plan.event_type}` lists all problems"
        )
    _delete_buckets(storage, stored)


def _delete_buckets(storage: Storage, tombstone: Tombstone) -> None:
    folders = {
        bucket.hour: Hour.parse(bucket.hour, tombstone.bucket_seconds).bucket_path(tombstone.type)
        for bucket in tombstone.buckets
    }
    for bucket in tombstone.buckets:
        _check_unchanged(storage, f"{folders[bucket.hour]}/{MARKER}", bucket)

    def delete_bucket(folder: str) -> None:
        storage.delete(f"{folder}/{MARKER}")  # so a folder that is deleted in parts is not closed
        storage.delete(folder)

    for _ in map_concurrently(delete_bucket, folders.values()):
        pass
    for parent in sorted({*_parents(tombstone.type, folders.values())}, reverse=True):
        _delete_if_empty(storage, parent)
    if left := list_if_exists(storage, f"{tombstone.type}/date={tombstone.date}"):
        raise Finding(
            f"{storage.url(f'{tombstone.type}/date={tombstone.date}')} contains {left[0].name}, "
            "which is not in the tombstone of the day, so it was not deleted; move it away"
        )


def _check_unchanged(storage: Storage, path: str, bucket: RemovedBucket) -> None:
    try:
        marker = storage.read(path)
    except NotFound:
        return  # deleted before
    if marker != bucket.marker.encode():
        raise Finding(
            f"{storage.url(path)} differs from the marker in the tombstone of its day; nothing was "
            "deleted. Restore the marker, or move the folder away"
        )


def _parents(event_type: str, folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        while (folder := parent_folder(folder)) != event_type:
            yield folder


def _delete_if_empty(storage: Storage, folder: str) -> None:
    # No bucket is published into a day before the last closed bucket of its type, so an empty
    # folder stays empty.
    try:
        entries = storage.list(folder)
    except NotFound:
        return
    if not entries:
        storage.delete(folder)
