"""Closed buckets, read with nothing but a `Storage`: no ledger, no Kafka, no Spark.

A reader trusts what the manifest lists.
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
    """There is no such bucket (yet)."""


class BadMarker(Finding):
    """A bucket's `_SUCCESS` is no manifest of this bucket that this version understands."""


class Damaged(Finding):
    """A listed file is missing or cannot be decoded."""


def list_types(storage: Storage) -> list[str]:
    """Types that have a folder below the root, sorted; none where the root does not exist yet."""
    return [
        entry.name
        for entry in list_if_exists(storage, "")
        if entry.is_folder and _TYPE_NAME.fullmatch(entry.name)
    ]


def list_hours(storage: Storage, event_type: str, bucket_seconds: int) -> list[Hour]:
    """Hours of the type that have a bucket's folder, ascending.

    Only a marker in it says that it is closed.
    """
    hours = []
    for date, *clock in _walk(
        storage, event_type, _LEVELS if bucket_seconds < 3600 else _LEVELS[:2], ()
    ):
        with suppress(ValueError):  # a folder that is no bucket of this length
            hours.append(Hour.parse(f"{date}T{':'.join(clock)}", bucket_seconds))
    return sorted(hours)


def any_marker(
    storage: Storage, folder: str, levels: Sequence[re.Pattern[str]] = _LEVELS
) -> str | None:
    """Path of a marker below the type's folder, of a bucket of whatever length; None: the folder
    holds no bucket.

    Ends at the first one found, so a full folder costs no more than an empty one.
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
        filter(None, (any_marker(storage, f"{folder}/{name}", levels[1:]) for name in deeper)), None
    )


def read_marker(storage: Storage, event_type: str, hour: Hour) -> bytes:
    """The `_SUCCESS` of a closed bucket, as it stands. NotClosed where there is none."""
    folder = hour.bucket_path(event_type)
    try:
        return storage.read(f"{folder}/{MARKER}")
    except NotFound as error:
        raise NotClosed(
            f"{event_type} {hour} is not closed: there is no {storage.url(folder)}/{MARKER}; "
            f"`hourmark bucket ls {event_type}` lists what is closed"
        ) from error


def read_manifest(storage: Storage, event_type: str, hour: Hour) -> Manifest:
    """The manifest of a closed bucket.

    NotClosed, or BadMarker if what stands there is not to be trusted.
    """
    return decoded_manifest(storage, event_type, hour, read_marker(storage, event_type, hour))


def decoded_manifest(storage: Storage, event_type: str, hour: Hour, content: bytes) -> Manifest:
    """The same, where the marker was read."""
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
                f"it speaks of {manifest.type} {manifest.hour} in buckets of "
                f"{manifest.bucket_seconds} s"
            )
    except ValueError as error:
        raise BadMarker(
            f"{storage.url(hour.bucket_path(event_type))}/{MARKER} is not this bucket's "
            f"manifest: {error}"
        ) from error
    return manifest


def standing_manifest(storage: Storage, event_type: str, hour: Hour) -> Manifest | None:
    """The same; None where the bucket is not closed."""
    try:
        return read_manifest(storage, event_type, hour)
    except NotClosed:
        return None


def read_events(
    storage: Storage, event_type: str, hour: Hour, manifest: Manifest
) -> Iterator[Event]:
    """Decoded events, in the order of the manifest's files. Damaged if one is missing or no
    Avro.
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
            raise Damaged(
                f"{what}; `hourmark bucket verify {event_type} {hour}` names all that is wrong"
            ) from error


def _walk(
    storage: Storage, folder: str, levels: Sequence[re.Pattern[str]], values: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """What the names of folders say, of each path through all levels."""
    if not levels:
        yield values
        return
    for entry in list_if_exists(storage, folder):
        if entry.is_folder and (match := levels[0].fullmatch(entry.name)):
            yield from _walk(storage, f"{folder}/{entry.name}", levels[1:], (*values, match[1]))
