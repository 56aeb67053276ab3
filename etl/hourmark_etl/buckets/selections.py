"""Selections: on an object store, the objects that decide which attempt becomes a bucket.

The *selection* of an hour is created once and never deleted. Its bucket may still be incomplete.
The *record* of an attempt names an hour for which the attempt may be selected. It exists at least
until a selected attempt has become a bucket, so interrupted publications are found without a list
of all selections. `hourmark_etl.closing.publication.selection` writes both; the design is described
in the decision record 2026-11-30-publishing-on-object-stores.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import decode_manifest, find_closed_manifest
from hourmark_etl.storage import NotFound, ObjectStorage, Storage
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER, SELECTIONS_FOLDER

_LOG: Final = logging.getLogger(__name__)


class Selection(BaseModel):
    """The attempt that becomes the bucket of an hour.

    Attributes:
        format: Version of this format.
        attempt: Id of the attempt.
        marker: Content of the bucket's `_SUCCESS` file.
        sources: Paths of the attempt's files, relative to the storage root, by their names in the
            bucket.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    attempt: str
    marker: str
    sources: dict[str, str]


class InvalidSelection(Finding):
    """Raised if a selection is damaged. An operator must restore or delete it."""


class SelectedHour(NamedTuple):
    """An hour of an event type for which an attempt may be selected.

    Attributes:
        event_type: Event type of the bucket.
        hour: Hour of the bucket.
    """

    event_type: str
    hour: Hour


def selection_path(event_type: str, hour: Hour) -> str:
    """Return the path of the selection of an hour, relative to the storage root.

    Args:
        event_type: Event type of the bucket.
        hour: Hour of the bucket.
    """
    return f"{SELECTIONS_FOLDER}/{hour.bucket_path(event_type)}.json"


def record_path(event_type: str, hour: Hour, attempt: str) -> str:
    """Return the path of the record that an attempt may be selected for an hour.

    Args:
        event_type: Event type of the bucket.
        hour: Hour of the bucket.
        attempt: Id of the publishing attempt.
    """
    return f"{ATTEMPTS_FOLDER}/{attempt}/{hour.bucket_path(event_type)}/{MARKER}"


def find_selection(storage: Storage, event_type: str, hour: Hour) -> Selection | None:
    """Return the selection of an hour; None if there is none.

    Args:
        storage: Storage with the selections.
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Raises:
        InvalidSelection: The object is not a valid selection.
        StorageError: Storage is unavailable or denies access.
    """
    path = selection_path(event_type, hour)
    try:
        content = storage.read(path)
    except NotFound:
        return None
    try:
        return Selection.model_validate_json(content)
    except ValueError as error:
        raise InvalidSelection(
            f"{storage.url(path)} is not a valid selection: {error}. Restore it from a copy. If "
            "there is none, and the hour has no bucket, delete it and all objects below "
            f"{storage.url(hour.bucket_path(event_type))}; the hour is then written again"
        ) from error


def find_selected_manifest(storage: Storage, event_type: str, hour: Hour) -> Manifest | None:
    """Return the manifest of the attempt that was selected for an hour.

    Args:
        storage: Storage with the selections.
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        The manifest, even if the bucket is not complete yet; None if no attempt was selected.

    Raises:
        InvalidSelection: The object is not a valid selection.
        BadMarker: Its manifest is invalid.
        StorageError: Storage is unavailable or denies access.
    """
    selection = find_selection(storage, event_type, hour)
    if selection is None:
        return None
    return decode_manifest(storage, event_type, hour, selection.marker.encode())


def recorded_hours(storage: Storage) -> Iterator[SelectedHour]:
    """Yield each hour for which an attempt that still exists may be selected.

    A record that is not valid is logged and skipped.

    Args:
        storage: Storage with the attempts.

    Yields:
        Hours in the order of the attempts' ids, one for each attempt; nothing on a storage with
        folders, where renames publish buckets.

    Raises:
        StorageError: Storage is unavailable or denies access.
    """
    if not isinstance(storage, ObjectStorage):
        return
    for path in storage.list_files(ATTEMPTS_FOLDER):
        if not path.endswith(f"/{MARKER}"):
            continue
        try:
            manifest = Manifest.decode(storage.read(path))
            yield SelectedHour(manifest.type, Hour.parse(manifest.hour, manifest.bucket_seconds))
        except NotFound:  # the publication has been completed since
            continue
        except ValueError as error:
            _LOG.error(
                "%s is not a manifest: %s. Restore it from a copy. If there is none, and the hour "
                "that its path names has a bucket, delete it",
                storage.url(path),
                error,
            )


def find_interrupted(storage: Storage) -> list[SelectedHour]:
    """Return the hours for which an attempt was selected but that have no marker yet.

    A running driver completes them within seconds. After a crash, the next driver does so when it
    starts.

    Args:
        storage: Storage with the attempts, the selections and the buckets.

    Returns:
        Hours without duplicates; empty on a storage with folders.

    Raises:
        StorageError: Storage is unavailable or denies access.
    """
    return [
        hour
        for hour in dict.fromkeys(recorded_hours(storage))
        if storage.exists(selection_path(*hour)) and not find_closed_manifest(storage, *hour)
    ]
