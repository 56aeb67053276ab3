"""Publishes one written hour as a bucket.

The attempt folder gets exactly the manifest's files and a complete `_SUCCESS`, is read back, and
one rename that refuses an existing target turns it into the bucket. If the target exists, its
marker is authoritative.
"""

from __future__ import annotations

from typing import NamedTuple

from hourmark.errors import Finding
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import find_manifest
from hourmark_etl.closing.bucket_manifest import name_files
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.model import Frontier
from hourmark_etl.storage import AlreadyExists, Storage, StorageError
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER


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


def publish(
    storage: Storage, frontier: Frontier, written_hour: WrittenHour, manifest: Manifest
) -> Manifest:
    """Publish the written files of an hour as a bucket, with one atomic rename.

    The files and the manifest are first moved to a temporary folder. The file names, sizes and the
    manifest are verified before the folder is renamed. If the bucket already exists, it is not
    changed, and its manifest is returned. The caller must check this manifest.

    Args:
        storage: Storage with the written files and the buckets.
        frontier: Event type and hour of the bucket. The hour must be sealed, which means that the
            content of the bucket is fixed.
        written_hour: The files of the bucket.
        manifest: The manifest to publish.

    Returns:
        The manifest of the published or existing bucket.

    Raises:
        Unwritable: Some rows cannot be written. An operator's override can close the hour without
            them.
        Finding: The files differ from what was written, or the target folder exists without a
            `_SUCCESS` file. Nothing is published.
        StorageError: A storage operation failed.
    """
    if written_hour.publish_error:
        raise Finding(written_hour.publish_error)
    if written_hour.unwritable:
        raise Unwritable(
            f"{written_hour.unwritable}. `hourmark bucket force` closes the hour all the same, "
            "and its marker says so"
        )
    attempt = f"{ATTEMPTS_FOLDER}/{manifest.attempt}/{frontier.event_type}"
    target = frontier.hour.bucket_path(frontier.event_type)
    storage.make_folder(attempt)
    for name, file in name_files(written_hour.files):
        storage.rename_new(file.path, f"{attempt}/{name}")
    storage.write_new(f"{attempt}/{MARKER}", manifest.encode(), unpublished=True)
    _read_back(storage, attempt, manifest)
    try:
        storage.rename_new(attempt, target)
    except AlreadyExists:
        standing = find_manifest(storage, frontier.event_type, frontier.hour)
        if standing is None:
            raise Finding(
                f"{storage.url(target)} stands, but without a {MARKER}: not made by "
                "Hourmark. Move it away, and closing goes on"
            ) from None
        return standing
    return manifest


def _read_back(storage: Storage, attempt: str, manifest: Manifest) -> None:
    found = {entry.name: entry.size for entry in storage.list(attempt)}
    wanted = {f.name: f.bytes for f in manifest.files} | {MARKER: len(manifest.encode())}
    if found != wanted:
        raise Finding(
            f"{storage.url(attempt)} holds {found}, the manifest says {wanted}; the "
            "attempt is not published"
        )
    if storage.read(f"{attempt}/{MARKER}", size=found[MARKER]) != manifest.encode():
        raise Finding(
            f"{storage.url(attempt)}/{MARKER} does not read back as written; the attempt "
            "is not published"
        )
