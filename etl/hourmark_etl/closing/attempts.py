"""Publishes written hours as buckets, in two steps.

`prepare_bucket` fills the attempt folder with exactly the manifest's files and a complete
`_SUCCESS`, and reads it back. `publish_prepared` turns it into the bucket, with one rename that
refuses an existing target. If the target exists, its marker is authoritative.

An attempt has the folders of the storage root, so buckets of a new day (or, if they are minutes, of
a new hour) are also prepared in one folder. `publish_folder` publishes them all by one rename.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import find_manifest
from hourmark_etl.closing.bucket_manifest import name_files
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.model import Frontier
from hourmark_etl.storage import AlreadyExists, Storage, StorageError
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER
from hourmark_etl.storage.paths import parent_folder


class Unwritable(Finding):
    """Raised if a bucket cannot be published unless an operator overrides the problem.

    Some rows cannot be written, or a check requires an older bucket that cannot be read. An
    operator's override closes the bucket without these rows or checks.
    """


class PublishFailure(NamedTuple):
    """An hourly bucket that could not be published or checked.

    Attributes:
        frontier: Event type and hour of the bucket.
        error: The error that prevented the publication or the check.
    """

    frontier: Frontier
    error: Finding | StorageError


def prepare_bucket(
    storage: Storage, frontier: Frontier, written_hour: WrittenHour, manifest: Manifest
) -> None:
    """Move the written files of an hour to its attempt folder, with the marker, and read it back.

    Buckets can be prepared in any order and concurrently. `publish_prepared` makes them visible.

    Args:
        storage: Storage with the written files.
        frontier: Event type and hour of the bucket. The hour must be sealed, which means that the
            content of the bucket is fixed.
        written_hour: The files of the bucket.
        manifest: The manifest of the bucket. Its attempt must not have prepared this bucket before.

    Raises:
        Unwritable: Some rows cannot be written. An operator's override can close the hour without
            them.
        Finding: The files, their sizes or the marker differ from what was written.
        StorageError: A storage operation failed.
    """
    if written_hour.publish_error:
        raise Finding(written_hour.publish_error)
    if written_hour.unwritable:
        raise Unwritable(
            f"{written_hour.unwritable}. To close the hour without these rows, use `hourmark "
            "bucket force`; the marker then records the omission"
        )
    folder, marker = attempt_folder(frontier, manifest.attempt), manifest.encode()
    storage.write_new(f"{folder}/{MARKER}", marker, unpublished=True)  # this creates the folder
    for name, file in name_files(written_hour.files):
        storage.rename_new(file.path, f"{folder}/{name}", unpublished=True)
    found = {entry.name: entry.size for entry in storage.list(folder)}
    wanted = {f.name: f.bytes for f in manifest.files} | {MARKER: len(marker)}
    if found != wanted:
        raise Finding(
            f"{storage.url(folder)} contains {found}, but the manifest lists {wanted}; the "
            "attempt is not published"
        )
    if storage.read(f"{folder}/{MARKER}", size=len(marker)) != marker:
        raise Finding(
            f"{storage.url(folder)}/{MARKER} differs from the marker that was written; the "
            "attempt is not published"
        )


def publish_prepared(storage: Storage, frontier: Frontier, manifest: Manifest) -> Manifest:
    """Publish a prepared bucket with one atomic rename.

    If the bucket already exists, it is not changed, and its manifest is returned. The caller must
    check this manifest.

    Args:
        storage: Storage with the attempt folder and the buckets.
        frontier: Event type and hour of the bucket.
        manifest: The manifest with which `prepare_bucket` was called.

    Returns:
        The manifest of the published or existing bucket.

    Raises:
        Finding: The target folder exists without a `_SUCCESS` file. Nothing is published.
        StorageError: A storage operation failed.
    """
    target = frontier.hour.bucket_path(frontier.event_type)
    try:
        storage.rename_new(attempt_folder(frontier, manifest.attempt), target)
    except AlreadyExists:
        existing = find_manifest(storage, frontier.event_type, frontier.hour)
        if existing is None:
            raise Finding(
                f"{storage.url(target)} exists but has no {MARKER}, so it was not created by "
                "Hourmark. Move the folder elsewhere; closing then continues automatically"
            ) from None
        return existing
    return manifest


def publish_folder(storage: Storage, buckets: Sequence[tuple[Frontier, Manifest]]) -> bool:
    """Publish all prepared buckets of a new day, or of a new hour of minutes, with one rename.

    Args:
        storage: Storage with the attempt folders and the buckets.
        buckets: All buckets that the attempt prepares in the folder, at least one, with the
            manifests with which `prepare_bucket` was called.

    Returns:
        True if all of them were published. False if the folder exists already; nothing was changed,
        and `publish_prepared` publishes them one by one.

    Raises:
        StorageError: A storage operation failed.
    """
    (frontier, manifest), *_ = buckets
    folder = bucket_parent(frontier.event_type, frontier.hour)
    try:
        storage.rename_new(f"{ATTEMPTS_FOLDER}/{manifest.attempt}/{folder}", folder)
    except AlreadyExists:
        return False
    return True


def bucket_parent(event_type: str, hour: Hour) -> str:
    """Return the path of the folder that holds a bucket and the others of its day.

    If buckets are shorter than an hour, the folder holds the buckets of one hour.

    Args:
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        Path relative to the storage root.
    """
    return parent_folder(hour.bucket_path(event_type))


def attempt_folder(frontier: Frontier, attempt: str) -> str:
    """Return the path of the folder in which an attempt prepares a bucket.

    Args:
        frontier: Event type and hour of the bucket.
        attempt: Id of the publishing attempt.

    Returns:
        Path relative to the storage root. No two buckets of an attempt have the same one.
    """
    return f"{ATTEMPTS_FOLDER}/{attempt}/{frontier.hour.bucket_path(frontier.event_type)}"
