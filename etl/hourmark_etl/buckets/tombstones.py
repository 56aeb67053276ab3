"""Reads the tombstones of removed buckets from storage.

`TYPE/_removed/DATE.json` contains the markers of all buckets of a day that were removed by
retention. A bucket is removed if its day has a tombstone that names it, and its marker is gone.
"""

from __future__ import annotations

import re
from typing import Final

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.tombstone import REMOVED_FOLDER, RemovedBucket, Tombstone
from hourmark_etl.storage import NotFound, Storage, list_if_exists, map_concurrently

_NAME: Final = re.compile(r"(\d{4}-\d{2}-\d{2})\.json")


class BadTombstone(Finding):
    """Raised if a tombstone is damaged, or is not the tombstone of its type and day.

    An operator must restore the file from a copy.
    """


def tombstone_path(event_type: str, date: str) -> str:
    """Return the path of a tombstone, relative to the storage root.

    Args:
        event_type: Name of the event type.
        date: The day (UTC), such as `2026-11-21`.
    """
    return f"{event_type}/{REMOVED_FOLDER}/{date}.json"


def date_of(hour: Hour) -> str:
    """Return the day (UTC) of an hour, such as `2026-11-21`."""
    return str(hour).partition("T")[0]


def list_removed_dates(storage: Storage, event_type: str) -> list[str]:
    """Return the days of an event type that have a tombstone.

    Args:
        storage: Storage with the buckets.
        event_type: Name of the event type.

    Returns:
        Days in ascending order, such as `2026-11-21`; empty if no bucket was removed.

    Raises:
        StorageError: Storage is unavailable or denies access.
    """
    return [
        match[1]
        for entry in list_if_exists(storage, f"{event_type}/{REMOVED_FOLDER}")
        if (match := _NAME.fullmatch(entry.name))
    ]


def find_tombstone(storage: Storage, event_type: str, date: str) -> Tombstone | None:
    """Return the tombstone of a type and day, or None if there is none.

    Args:
        storage: Storage with the buckets.
        event_type: Name of the event type.
        date: The day (UTC), such as `2026-11-21`.

    Raises:
        BadTombstone: The file is damaged, or is the tombstone of another type or day.
        StorageError: Storage is unavailable or denies access.
    """
    path = tombstone_path(event_type, date)
    try:
        content = storage.read(path)
    except NotFound:
        return None
    try:
        tombstone = Tombstone.decode(content)
        if (tombstone.type, tombstone.date) != (event_type, date):
            raise ValueError(f"it is the tombstone of {tombstone.type} {tombstone.date}")
    except ValueError as error:
        raise BadTombstone(
            f"{storage.url(path)} is not a valid tombstone of {event_type} {date}: {error}; "
            "restore the file from a copy"
        ) from error
    return tombstone


def find_removed_bucket(
    storage: Storage, event_type: str, hour: Hour
) -> tuple[Tombstone, RemovedBucket] | None:
    """Return the tombstone that names the bucket of an hour, and its entry.

    While a removal is unfinished, the bucket may still be on storage.

    Args:
        storage: Storage with the buckets.
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        The tombstone and the entry of the bucket; None if the bucket was not removed.

    Raises:
        BadTombstone: The tombstone of the day is damaged.
        StorageError: Storage is unavailable or denies access.
    """
    tombstone = find_tombstone(storage, event_type, date_of(hour))
    found = None if tombstone is None else tombstone.find_bucket(str(hour))
    if tombstone is None or found is None or tombstone.bucket_seconds != hour.length_s:
        return None
    return tombstone, found


def read_removed_buckets(
    storage: Storage, event_type: str, bucket_seconds: int
) -> dict[Hour, RemovedBucket]:
    """Return all removed buckets of an event type.

    Args:
        storage: Storage with the buckets.
        event_type: Name of the event type.
        bucket_seconds: Length of a bucket in seconds. Buckets of another length are left out.

    Returns:
        Removed buckets by hour, in ascending order; empty if there are none.

    Raises:
        BadTombstone: A tombstone is damaged.
        StorageError: Storage is unavailable or denies access.
    """
    tombstones = map_concurrently(
        lambda date: find_tombstone(storage, event_type, date),
        list_removed_dates(storage, event_type),
    )
    return {
        Hour.parse(bucket.hour, bucket_seconds): bucket
        for tombstone in tombstones
        if tombstone is not None and tombstone.bucket_seconds == bucket_seconds
        for bucket in tombstone.buckets
    }
