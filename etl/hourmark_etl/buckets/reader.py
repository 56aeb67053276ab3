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
from hourmark.records.manifest import FORMAT, MARKER, Manifest
from hourmark_etl.storage import NotFound, Storage, StorageError, list_if_exists

_TYPE_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,99}")
_LEVELS: Final = (
    re.compile(r"date=(\d{4}-\d{2}-\d{2})"),
    re.compile(r"hour=(\d{2})"),
    re.compile(r"minute=(\d{2})"),
)

Event = dict[str, Any]


class NotClosed(HourmarkError):
    """Raised if a bucket has no `_SUCCESS` file; its hour may still be open."""


class BadMarker(Finding):
    """Raised if a bucket's `_SUCCESS` file is not a valid manifest, or that of another bucket."""


class DamagedBucketFile(Finding):
    """Raised if a file in a bucket's manifest is missing or cannot be decoded."""


def list_types(storage: Storage) -> list[str]:
    """Return the event types that have a folder in the storage root, in alphabetical order.

    Returns:
        Names of event types; empty if the root does not exist.
    """
    return [
        entry.name
        for entry in list_if_exists(storage, "")
        if entry.is_folder and _TYPE_NAME.fullmatch(entry.name)
    ]


def list_hours(storage: Storage, event_type: str, bucket_seconds: int) -> list[Hour]:
    """Return the hours for which a bucket folder of an event type exists, in ascending order.

    A folder alone does not mean that the bucket is closed; `read_marker` checks that.

    Args:
        storage: The storage.
        event_type: Name of the event type.
        bucket_seconds: Length of a bucket in seconds. Folders of buckets of other lengths are
            ignored.

    Returns:
        The hours; empty if the type has no folder.
    """
    hours = []
    for date, *clock in _walk_levels(
        storage, event_type, _LEVELS if bucket_seconds < 3600 else _LEVELS[:2], ()
    ):
        with suppress(ValueError):  # not a bucket of this length
            hours.append(Hour.parse(f"{date}T{':'.join(clock)}", bucket_seconds))
    return sorted(hours)


def find_marker(
    storage: Storage, folder: str, levels: Sequence[re.Pattern[str]] = _LEVELS
) -> str | None:
    """Return the path of any one `_SUCCESS` file of a bucket below a folder; None if there is none.

    Buckets of all lengths are searched. The search stops at the first marker, so it is fast even if
    there are many buckets.

    Args:
        storage: The storage.
        folder: Path of an event type's folder, relative to the storage root.
        levels: Patterns of the folder names below it. Callers use the default; the recursion passes
            the remaining levels.
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
    """Return the content of a closed bucket's marker, the file `_SUCCESS`.

    Args:
        storage: The storage.
        event_type: The bucket's event type.
        hour: The bucket's hour.

    Raises:
        NotClosed: The bucket has no marker.
        StorageError: Storage is unavailable or denies access.
    """
    folder = hour.bucket_path(event_type)
    try:
        return storage.read(f"{folder}/{MARKER}")
    except NotFound as error:
        raise NotClosed(
            f"{event_type} {hour} is not closed: there is no {storage.url(folder)}/{MARKER}; "
            f"`hourmark bucket ls {event_type}` lists what is closed"
        ) from error


def read_manifest(storage: Storage, event_type: str, hour: Hour) -> Manifest:
    """Return the manifest of a closed bucket, which is the content of its `_SUCCESS` file.

    Args:
        storage: The storage.
        event_type: The bucket's event type.
        hour: The bucket's hour.

    Raises:
        NotClosed: The bucket has no `_SUCCESS` file.
        BadMarker: The file is not a valid manifest of this bucket.
        StorageError: Storage is unavailable or denies access.
    """
    return decode_manifest(storage, event_type, hour, read_marker(storage, event_type, hour))


def decode_manifest(storage: Storage, event_type: str, hour: Hour, content: bytes) -> Manifest:
    """Decode and validate the content of a bucket's `_SUCCESS` file.

    Args:
        storage: Used only to name the file in errors.
        event_type: The bucket's event type.
        hour: The bucket's hour.
        content: The bytes of the marker file.

    Raises:
        BadMarker: The content is no valid manifest, or belongs to another bucket.
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
    """Return the manifest of a bucket; None if the bucket is not closed.

    Args:
        storage: The storage.
        event_type: The bucket's event type.
        hour: The bucket's hour.

    Raises:
        BadMarker: The bucket's `_SUCCESS` file is not a valid manifest of this bucket.
        StorageError: Storage is unavailable or denies access.
    """
    try:
        return read_manifest(storage, event_type, hour)
    except NotClosed:
        return None


def read_events(
    storage: Storage, event_type: str, hour: Hour, manifest: Manifest
) -> Iterator[Event]:
    """Yield the decoded events of a bucket in the order of the manifest's files.

    Args:
        storage: The storage.
        event_type: The bucket's event type.
        hour: The bucket's hour.
        manifest: The bucket's manifest.

    Raises:
        DamagedBucketFile: A file is missing or is not valid Avro. Events before the damage were
            yielded.
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
                f"{what}; `hourmark bucket verify {event_type} {hour}` names all that is wrong"
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
