"""Publishes written hours as buckets on a storage with folders, in two steps.

`prepare_bucket` fills the attempt folder with exactly the manifest's files and a complete
`_SUCCESS`, and reads it back. `publish_prepared` turns it into the bucket, with one rename that
refuses an existing target. If the target exists, its marker is authoritative.

An attempt has the folders of the storage root, so buckets of a new day (or, if they are minutes, of
a new hour) are also prepared in one folder. `publish_folder` publishes them all by one rename.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

from hourmark.errors import Finding
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import find_closed_manifest, list_bucket_files
from hourmark_etl.closing.bucket_manifest import name_bucket_files
from hourmark_etl.closing.publication.port import (
    BucketPublication,
    PreparedBucket,
    bucket_parent,
    check_publishable,
)
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.model import Frontier
from hourmark_etl.storage import AlreadyExists, FolderStorage
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER


@dataclasses.dataclass(frozen=True)
class RenamePublication(BucketPublication):
    """Publishes buckets on a storage with folders, with renames that refuse an existing target.

    Attributes:
        storage: Storage with the attempts and the buckets.
    """

    can_select_deleted: ClassVar[bool] = False
    storage: FolderStorage

    def prepare(
        self, frontier: Frontier, written_hour: WrittenHour, manifest: Manifest
    ) -> PreparedBucket:
        prepare_bucket(self.storage, frontier, written_hour, manifest)
        return PreparedBucket(frontier, manifest)

    def publish(
        self, buckets: Sequence[PreparedBucket], *, is_folder_complete: bool
    ) -> Iterator[Manifest]:
        if is_folder_complete and publish_folder(self.storage, buckets):
            yield from (bucket.manifest for bucket in buckets)
            return
        for bucket in buckets:
            yield publish_prepared(self.storage, bucket.frontier, bucket.manifest)

    def find(self, frontier: Frontier) -> Manifest | None:
        return find_closed_manifest(self.storage, frontier.event_type, frontier.hour)

    def list_attempts(self) -> list[str]:
        return [ATTEMPTS_FOLDER]

    def delete_attempt(self, attempt: str, *, is_closed: bool) -> None:  # noqa: ARG002
        self.storage.delete(f"{ATTEMPTS_FOLDER}/{attempt}")


def prepare_bucket(
    storage: FolderStorage, frontier: Frontier, written_hour: WrittenHour, manifest: Manifest
) -> None:
    """Move the files of a bucket to a temporary folder, together with its `_SUCCESS` file.

    `publish_prepared` then makes the folder visible with one rename. The sizes of the files and the
    content of `_SUCCESS` are read back to verify them. Buckets can be prepared in any order and
    concurrently.

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
    check_publishable(written_hour)
    folder, marker = attempt_folder(frontier, manifest.attempt), manifest.encode()
    storage.write_new(f"{folder}/{MARKER}", marker, unpublished=True)  # this creates the folder
    for name, path in name_bucket_files(written_hour.files).items():
        storage.rename_new(path, f"{folder}/{name}", unpublished=True)
    found = list_bucket_files(storage, folder)
    wanted = manifest.file_sizes | {MARKER: len(marker)}
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


def publish_prepared(storage: FolderStorage, frontier: Frontier, manifest: Manifest) -> Manifest:
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
        existing = find_closed_manifest(storage, frontier.event_type, frontier.hour)
        if existing is None:
            raise Finding(
                f"{storage.url(target)} exists but has no {MARKER}, so it was not created by "
                "Hourmark. Move the folder elsewhere; closing then continues automatically"
            ) from None
        return existing
    return manifest


def publish_folder(storage: FolderStorage, buckets: Sequence[PreparedBucket]) -> bool:
    """Publish all prepared buckets of one day with one atomic rename of their common folder.

    This is only possible if the folder of the day does not exist yet. If buckets are shorter than
    an hour, the folder contains the buckets of one hour instead.

    Args:
        storage: Storage with the attempt folders and the buckets.
        buckets: All buckets that the attempt has prepared in the folder, at least one.

    Returns:
        True if all buckets were published. False if the folder already exists and nothing was
        changed; use `publish_prepared` to publish the buckets one by one.

    Raises:
        StorageError: A storage operation failed.
    """
    frontier, manifest = buckets[0].frontier, buckets[0].manifest
    folder = bucket_parent(frontier.event_type, frontier.hour)
    try:
        storage.rename_new(f"{ATTEMPTS_FOLDER}/{manifest.attempt}/{folder}", folder)
    except AlreadyExists:
        return False
    return True


def attempt_folder(frontier: Frontier, attempt: str) -> str:
    """Return the path of the folder in which a publishing attempt prepares a bucket.

    Args:
        frontier: Event type and hour of the bucket.
        attempt: Id of the publishing attempt.

    Returns:
        Path relative to the storage root. It is different for each bucket and attempt.
    """
    return f"{ATTEMPTS_FOLDER}/{attempt}/{frontier.hour.bucket_path(frontier.event_type)}"
