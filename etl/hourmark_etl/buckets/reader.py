"""Reads closed buckets with nothing but a `Storage`: no ledger, no Kafka, no Spark.

Only files that the manifest lists belong to a bucket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import fastavro

from hourmark.errors import Finding, HourmarkError
from hourmark.records.hours import Hour
from hourmark.records.manifest import FORMAT, MARKER, PARQUET_FOLDER, Manifest
from hourmark.records.tombstone import RemovedBucket, Tombstone
from hourmark_etl.buckets.tombstones import find_removed_bucket
from hourmark_etl.humanize import format_iso
from hourmark_etl.storage import (
    NotFound,
    Storage,
    StorageEntry,
    StorageError,
    list_if_exists,
)

_TYPE_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,99}")
_LEVELS: Final = (
    re.compile(r"date=(\d{4}-\d{2}-\d{2})"),
    re.compile(r"hour=(\d{2})"),
    re.compile(r"minute=(\d{2})"),
)

Event = dict[str, Any]


class NotClosed(HourmarkError):
    """Raised if a bucket has no `_SUCCESS` file, which means that it is not closed.

    `hourmark bucket why` explains what an open bucket waits for.
    """


class BucketRemoved(NotClosed):
    """Raised if a bucket was closed, and was later removed by retention.

    Attributes:
        message: Description of the error for users.
        tombstone: Tombstone of the day, which states when and why the bucket was removed.
        bucket: Entry of the bucket in the tombstone, with its complete marker.
    """

    def __init__(self, message: str, tombstone: Tombstone, bucket: RemovedBucket) -> None:
        super().__init__(message, tombstone, bucket)
        self.message, self.tombstone, self.bucket = message, tombstone, bucket

    def __str__(self) -> str:
        return self.message


class BadMarker(Finding):
    """Raised if a bucket's `_SUCCESS` file is invalid.

    Its content is not a manifest, or it is the manifest of another bucket.
    """


class DamagedBucketFile(Finding):
    """Raised if a file that a bucket's manifest lists is missing or cannot be decoded.

    `hourmark bucket verify` reports all faults of the bucket.
    """


def list_types(storage: Storage) -> list[str]:
    """Return the event types that have a folder in the storage root.

    Args:
        storage: Storage with the buckets.

    Returns:
        Names of event types in alphabetical order; empty if the root does not exist.

    Raises:
        StorageError: Storage is unavailable or denies access.
    """
    return [
        entry.name
        for entry in list_if_exists(storage, "")
        if entry.is_folder and _TYPE_NAME.fullmatch(entry.name)
    ]


def list_dates(storage: Storage, event_type: str) -> list[str]:
    """Return the days (UTC) for which a folder of an event type exists.

    Args:
        storage: Storage with the buckets.
        event_type: Name of the event type.

    Returns:
        Days in ascending order, such as `2026-11-21`; empty if the type has no folder.

    Raises:
        StorageError: Storage is unavailable or denies access.
    """
    return [date for (date,) in _walk_levels(storage, event_type, _LEVELS[:1], ())]


def list_hours(
    storage: Storage,
    event_type: str,
    bucket_seconds: int,
    first: Hour | None = None,
    last: Hour | None = None,
) -> list[Hour]:
    """Return the hours for which a bucket folder of an event type exists.

    The bucket of an existing folder may not be closed. Use `read_marker` to check this. Folders of
    days outside the time span are not listed, so the cost does not depend on older buckets.

    Args:
        storage: Storage with the buckets.
        event_type: Name of the event type.
        bucket_seconds: Length of a bucket in seconds. Folders of buckets with another length are
            ignored.
        first: First hour to return; None for no limit.
        last: Last hour to return; None for no limit.

    Returns:
        Hours in ascending order; empty if the type has no folder.

    Raises:
        StorageError: Storage is unavailable or denies access.
    """
    dates, *clocks = _LEVELS if bucket_seconds < 3600 else _LEVELS[:2]
    first_date = "" if first is None else str(first)[: len("2026-11-21")]
    last_date = "9999-12-31" if last is None else str(last)[: len("2026-11-21")]
    hours = []
    for (date,) in _walk_levels(storage, event_type, [dates], ()):
        if not first_date <= date <= last_date:
            continue
        folder = f"{event_type}/date={date}"
        for _, *clock in _walk_levels(storage, folder, clocks, (date,)):
            with suppress(ValueError):  # not a bucket of this length
                hours.append(Hour.parse(f"{date}T{':'.join(clock)}", bucket_seconds))
    return sorted(hour for hour in hours if is_between(hour, first, last))


def is_between(hour: Hour, first: Hour | None, last: Hour | None) -> bool:
    """Return whether an hour is in a time span.

    Args:
        hour: The hour. It must have the same length as `first` and `last`.
        first: First hour of the span; None for no limit.
        last: Last hour of the span; None for no limit.
    """
    return (first is None or first <= hour) and (last is None or hour <= last)


def find_marker(
    storage: Storage, folder: str, levels: Sequence[re.Pattern[str]] = _LEVELS
) -> str | None:
    """Search the bucket folders of an event type for any `_SUCCESS` file.

    Use this function to check whether the type has any closed bucket, regardless of its length. The
    search stops at the first file found, so it is fast even if there are many buckets.

    Args:
        storage: Storage with the buckets.
        folder: Path of an event type's folder, relative to the storage root.
        levels: Patterns of the folder names below `folder`. Callers use the default; recursive
            calls pass the remaining levels.

    Returns:
        Path of one `_SUCCESS` file, relative to the storage root; None if there is none.

    Raises:
        StorageError: Storage is unavailable or denies access.
    """
    entries = list_if_exists(storage, folder)
    if len(levels) < 2 and any(entry.name == MARKER for entry in entries):
        return f"{folder}/{MARKER}"
    deeper = (
        entry.name
        for entry in entries
        if levels and entry.is_folder and levels[0].fullmatch(entry.name)
    )
    return next(
        filter(None, (find_marker(storage, f"{folder}/{name}", levels[1:]) for name in deeper)),
        None,
    )


def read_marker(storage: Storage, event_type: str, hour: Hour) -> bytes:
    """Return the content of the `_SUCCESS` file that marks a bucket as closed.

    The content is not validated; `read_manifest` also decodes it.

    Args:
        storage: Storage with the buckets.
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        The bytes of the file, as stored.

    Raises:
        BucketRemoved: The bucket was removed by retention. This is a `NotClosed`.
        NotClosed: The bucket has no `_SUCCESS` file.
        BadTombstone: The bucket has no `_SUCCESS` file, and the tombstone of its day is damaged.
        StorageError: Storage is unavailable or denies access.
    """
    folder = hour.bucket_path(event_type)
    try:
        return storage.read(f"{folder}/{MARKER}")
    except NotFound as error:
        if (removed := find_removed_bucket(storage, event_type, hour)) is not None:
            tombstone, bucket = removed
            raise BucketRemoved(
                f"{event_type} {hour} was closed as {bucket.grade.value} with {bucket.events} "
                f"events, and was removed at {format_iso(tombstone.removed_at_ms)} by "
                f"{tombstone.setting} = {tombstone.days}; `hourmark bucket show {event_type} {hour}` "
                "shows its manifest",
                tombstone,
                bucket,
            ) from error
        raise NotClosed(
            f"{event_type} {hour} is not closed: {storage.url(folder)}/{MARKER} does not exist; "
            f"`hourmark bucket ls {event_type}` lists the closed buckets"
        ) from error


def read_manifest(storage: Storage, event_type: str, hour: Hour) -> Manifest:
    """Return the manifest of a closed bucket, decoded from its `_SUCCESS` file.

    Args:
        storage: Storage with the buckets.
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        The validated manifest, which lists the bucket's files, counts and grade.

    Raises:
        NotClosed: The bucket has no `_SUCCESS` file.
        BadMarker: The file is not a valid manifest of this bucket.
        StorageError: Storage is unavailable or denies access.
    """
    return decode_manifest(storage, event_type, hour, read_marker(storage, event_type, hour))


def decode_manifest(storage: Storage, event_type: str, hour: Hour, content: bytes) -> Manifest:
    """Decode and validate the content of a bucket's `_SUCCESS` file.

    Args:
        storage: Storage of the bucket. It is only used for error messages.
        event_type: Event type of the bucket.
        hour: Hour of the bucket.
        content: Content of the `_SUCCESS` file.

    Returns:
        The manifest of the bucket.

    Raises:
        BadMarker: The content is not a valid manifest, or is the manifest of another bucket.
    """
    try:
        found = json.loads(content)
        if isinstance(found, dict) and found.get("format") != FORMAT:
            raise ValueError(
                f"its format is {found.get('format')!r}, this version reads {FORMAT}; use "
                "a newer hourmark"
            )
        manifest = Manifest.decode(content)
        if (manifest.type, manifest.hour, manifest.bucket_seconds) != (
            event_type,
            str(hour),
            hour.length_s,
        ):
            raise ValueError(
                f"it is the manifest of {manifest.type} {manifest.hour} in buckets of "
                f"{manifest.bucket_seconds} s"
            )
    except ValueError as error:
        raise BadMarker(
            f"{storage.url(hour.bucket_path(event_type))}/{MARKER} is not this bucket's "
            f"manifest: {error}"
        ) from error
    return manifest


def find_manifest(storage: Storage, event_type: str, hour: Hour) -> Manifest | None:
    """Return the manifest of a bucket, or None if the bucket is not closed.

    Unlike `read_manifest`, this function does not raise an exception for an open or removed bucket.

    Args:
        storage: Storage with the buckets.
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        The validated manifest; None if the bucket has no `_SUCCESS` file.

    Raises:
        BadMarker: The bucket's `_SUCCESS` file is not a valid manifest of this bucket.
        StorageError: Storage is unavailable or denies access.
    """
    try:
        content = storage.read(f"{hour.bucket_path(event_type)}/{MARKER}")
    except NotFound:
        return None
    return decode_manifest(storage, event_type, hour, content)


def find_closed_manifest(storage: Storage, event_type: str, hour: Hour) -> Manifest | None:
    """Return the manifest with which an hour was closed, even if its bucket was removed later.

    Args:
        storage: Storage with the buckets.
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        The manifest from the bucket's `_SUCCESS` file, or from the tombstone of a removed bucket;
        None if the hour was not closed.

    Raises:
        BadMarker: The bucket's `_SUCCESS` file is not a valid manifest of this bucket.
        BadTombstone: The bucket has no `_SUCCESS` file, and the tombstone of its day is damaged.
        StorageError: Storage is unavailable or denies access.
    """
    try:
        return read_manifest(storage, event_type, hour)
    except BucketRemoved as error:
        return error.bucket.manifest
    except NotClosed:
        return None


def list_bucket_files(storage: Storage, folder: str) -> dict[str, int]:
    """Return all files and folders in the folder of a bucket, including those in `_parquet`.

    Args:
        storage: Storage with the bucket.
        folder: Path of the bucket's folder, relative to the storage root.

    Returns:
        Size in bytes by path within the folder, such as `_parquet/part-00000.parquet`; 0 for a
        folder. The folder `_parquet` itself is not included unless it is empty.

    Raises:
        NotFound: The folder does not exist.
        StorageError: Storage is unavailable or denies access.
    """
    found: dict[str, int] = {}
    for entry in storage.list(folder):
        inner: list[StorageEntry] = []
        if entry.is_folder and entry.name == PARQUET_FOLDER:
            inner = storage.list(f"{folder}/{entry.name}")
        found |= {f"{entry.name}/{of.name}": of.size for of in inner} or {entry.name: entry.size}
    return found


def read_events(
    storage: Storage, event_type: str, hour: Hour, manifest: Manifest
) -> Iterator[Event]:
    """Yield the decoded events of a closed bucket, file by file in the order of its manifest.

    Args:
        storage: Storage with the buckets.
        event_type: Event type of the bucket.
        hour: Hour of the bucket.
        manifest: Manifest of the bucket, from `read_manifest`.

    Yields:
        Each event as a dict of values by field name.

    Raises:
        DamagedBucketFile: A file is missing or is not valid Avro. Events before the damage have
            already been yielded.
        StorageError: Storage is unavailable.
    """
    for listed in manifest.files:
        path = f"{hour.bucket_path(event_type)}/{listed.name}"
        try:
            with storage.open(path) as file:
                yield from cast(Iterator[Event], fastavro.reader(file))
        except Exception as error:  # damaged bytes make a decoder raise anything
            if isinstance(error, StorageError) and not isinstance(error, NotFound):
                raise
            what = f"{storage.url(path)} is damaged ({type(error).__name__}: {error})"
            raise DamagedBucketFile(
                f"{what}; `hourmark bucket verify {event_type} {hour}` lists all problems"
            ) from error


def _walk_levels(
    storage: Storage, folder: str, levels: Sequence[re.Pattern[str]], values: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    if not levels:
        yield values
        return
    for entry in list_if_exists(storage, folder):
        if entry.is_folder and (match := levels[0].fullmatch(entry.name)):
            yield from _walk_levels(
                storage, f"{folder}/{entry.name}", levels[1:], (*values, match[1])
            )
