"""Copies closed buckets to another storage, with verified content and an intact chain of markers.

A bucket is copied to `_copies/RUN/…` first. The bytes that are read are compared with the digests
in the marker, and read back from the target. Then one rename publishes the bucket, so the target
never has a part of a bucket. Nothing on the target is replaced. What an earlier run has copied is
compared by its marker and the sizes of its files, and not copied again.

Both storages may remove old buckets, with different retentions. A bucket that was removed on the
target is not copied again. A bucket that was removed on the source stays on the target; only if the
target does not have it, the tombstone of its day is copied.

Buckets of a type are copied in the order of their hours, after its tombstones, so an interrupted
copy is a valid beginning of the chain.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import (
    MARKER,
    BucketFile,
    Manifest,
    ParquetFile,
    PreviousMarker,
)
from hourmark.records.tombstone import RemovedBucket, Tombstone
from hourmark_etl.buckets.digesting_reader import DigestingReader
from hourmark_etl.buckets.reader import (
    BucketRemoved,
    NotClosed,
    decode_manifest,
    list_bucket_files,
    read_marker,
)
from hourmark_etl.buckets.tombstones import (
    find_tombstone,
    list_removed_dates,
    tombstone_path,
)
from hourmark_etl.storage import (
    AlreadyExists,
    FolderStorage,
    NotFound,
    Storage,
    list_if_exists,
    map_concurrently,
)
from hourmark_etl.storage.folders import COPIES_FOLDER

_READ_BYTES: Final = 1 << 20


class CopyOutcome(enum.StrEnum):
    """The result of copying a bucket.

    Attributes:
        COPIED: The bucket was copied and verified.
        PRESENT: The target has the same bucket already.
        REMOVED: The target had the same bucket, and removed it by its own retention.
    """

    COPIED = "copied"
    PRESENT = "present"
    REMOVED = "removed"


class BucketCopier:
    """Copier of closed buckets from one storage to another.

    Args:
        source: Storage with the buckets. It is only read.
        target: Storage to copy to.
        run: Unique name of this run, for its temporary folder on the target.
    """

    def __init__(self, source: Storage, target: FolderStorage, run: str) -> None:
        self._source, self._target, self._run = source, target, run

    @property
    def temporary_folder(self) -> str:
        """Return the path of the temporary folder on the target."""
        return f"{COPIES_FOLDER}/{self._run}"

    def list_missing_tombstones(self, event_type: str) -> list[str]:
        """Return the days whose tombstones the target needs, without changing anything.

        Args:
            event_type: Name of the event type.

        Returns:
            Days in ascending order, such as `2026-11-21`. Days that the target has completely, as
            buckets or as a tombstone, are left out.

        Raises:
            BadTombstone: A tombstone is damaged.
            Finding: The target has other buckets on a removed day.
            StorageError: A storage is unavailable.
        """
        return [tombstone.date for tombstone in self._missing_tombstones(event_type)]

    def _missing_tombstones(self, event_type: str) -> list[Tombstone]:
        dates = list_removed_dates(self._source, event_type)
        missing = map_concurrently(lambda date: self._find_missing(event_type, date), dates)
        return [tombstone for tombstone in missing if tombstone is not None]

    def _find_missing(self, event_type: str, date: str) -> Tombstone | None:
        tombstone = find_tombstone(self._source, event_type, date)
        return tombstone if tombstone and self._needs_tombstone(tombstone) else None

    def copy_tombstones(self, event_type: str) -> int:
        """Copy the tombstones that the target needs. Call this before the buckets are copied.

        Args:
            event_type: Name of the event type.

        Returns:
            Number of copied tombstones.

        Raises:
            BadTombstone: A tombstone is damaged.
            Finding: The target has other buckets on a removed day.
            StorageError: A storage operation failed.
        """
        missing = self._missing_tombstones(event_type)
        for tombstone in missing:
            self._write_tombstone(tombstone)
        return len(missing)

    def plan_buckets(
        self, event_type: str, hours: Sequence[Hour]
    ) -> Iterator[tuple[Hour, Manifest, CopyOutcome]]:
        """Determine what `copy_buckets` would do, without changing anything.

        Only markers are read, so damaged files are not detected.

        Args:
            event_type: Name of the event type.
            hours: Hours of closed buckets, in ascending order.

        Yields:
            The hour, the manifest, and the expected outcome.

        Raises:
            NotClosed: A bucket is not closed.
            BadMarker: A marker is damaged.
            Finding: The chain of the source is broken, or the target has something else at the path
                of a bucket.
            StorageError: A storage is unavailable.
        """
        for hour, manifest, marker in self._read_chain(event_type, hours, lambda _: None):
            yield hour, manifest, self._find_outcome(hour, manifest, marker) or CopyOutcome.COPIED

    def copy_buckets(
        self, event_type: str, hours: Sequence[Hour]
    ) -> Iterator[tuple[Hour, Manifest, CopyOutcome]]:
        """Copy buckets of an event type, and yield each one when its copy is complete.

        A bucket that is removed on the source during the copy is not yielded. Its tombstone is
        copied instead.

        Args:
            event_type: Name of the event type.
            hours: Hours of closed buckets, in ascending order.

        Yields:
            The hour, the manifest, and what was done.

        Raises:
            NotClosed: A bucket is not closed.
            BadMarker: A marker is damaged.
            Finding: A file differs from its marker, the target has something else at the path of
                the bucket, or the marker does not name the bucket that is before it on the source.
                The bucket is not published, and later ones are not copied.
            StorageError: A storage operation failed. A new run continues with this bucket.
        """
        for hour, manifest, marker in self._read_chain(event_type, hours, self._copy_tombstone):
            try:
                outcome = self._copy_bucket(hour, manifest, marker)
            except NotFound:
                try:
                    read_marker(self._source, event_type, hour)
                except BucketRemoved as error:  # while it was copied
                    self._copy_tombstone(error.tombstone)
                    continue
                raise
            yield hour, manifest, outcome

    def _read_chain(
        self, event_type: str, hours: Sequence[Hour], on_removed: Callable[[Tombstone], None]
    ) -> Iterator[tuple[Hour, Manifest, bytes]]:
        before: PreviousMarker | None = None
        for hour in hours:
            try:
                marker = read_marker(self._source, event_type, hour)
            except BucketRemoved as error:  # since the hours were listed
                on_removed(error.tombstone)
                before = error.bucket.reference
                continue
            manifest = decode_manifest(self._source, event_type, hour, marker)
            if before is not None and manifest.previous != before:
                raise Finding(
                    f"{event_type} {hour} does not refer to the marker of {before.hour}, so its "
                    f"chain is broken; `hourmark bucket verify {event_type}` lists all problems"
                )
            before = PreviousMarker.from_marker(str(hour), marker)
            yield hour, manifest, marker

    def delete_temporary_files(self) -> None:
        """Delete the temporary folder of this run."""
        self._target.delete(self.temporary_folder)

    def _copy_tombstone(self, tombstone: Tombstone) -> None:
        if self._needs_tombstone(tombstone):
            self._write_tombstone(tombstone)

    def _write_tombstone(self, tombstone: Tombstone) -> None:
        path = tombstone_path(tombstone.type, tombstone.date)
        try:
            self._target.write_new(path, tombstone.encode())
        except AlreadyExists:  # by another run, or the response was lost
            self._needs_tombstone(tombstone)

    def _needs_tombstone(self, tombstone: Tombstone) -> bool:
        existing = find_tombstone(self._target, tombstone.type, tombstone.date)
        if existing is None:
            has_bucket = functools.partial(self._has_bucket, tombstone)
            return not all([*map_concurrently(has_bucket, tombstone.buckets)])
        if existing.buckets != tombstone.buckets:
            path = tombstone_path(tombstone.type, tombstone.date)
            raise Finding(
                f"{self._target.url(path)} names other buckets than {self._source.url(path)}; "
                "nothing was replaced. Copy to an empty folder"
            )
        return False

    def _has_bucket(self, tombstone: Tombstone, bucket: RemovedBucket) -> bool:
        hour = Hour.parse(bucket.hour, tombstone.bucket_seconds)
        folder = hour.bucket_path(tombstone.type)
        try:
            marker = self._target.read(f"{folder}/{MARKER}")
        except NotFound:
            return False
        if marker != bucket.marker.encode():
            raise self._other_bucket(folder)
        return True

    def _copy_bucket(self, hour: Hour, manifest: Manifest, marker: bytes) -> CopyOutcome:
        folder = hour.bucket_path(manifest.type)
        if outcome := self._find_outcome(hour, manifest, marker):
            return outcome
        temporary = f"{self.temporary_folder}/{folder}"
        for _ in map_concurrently(
            lambda file: self._copy_file(folder, temporary, file), manifest.all_files
        ):
            pass
        self._target.write_new(f"{temporary}/{MARKER}", marker, unpublished=True)
        self._check_sizes(temporary, manifest, marker)
        try:
            self._target.rename_new(temporary, folder)
        except AlreadyExists:
            if (found := self._find_outcome(hour, manifest, marker)) is None:
                raise  # it has vanished since
            return found  # another run was faster
        return CopyOutcome.COPIED

    def _find_outcome(self, hour: Hour, manifest: Manifest, marker: bytes) -> CopyOutcome | None:
        # What the target already has; None if the bucket must be copied.
        folder = hour.bucket_path(manifest.type)
        outcome = CopyOutcome.PRESENT
        try:
            existing = read_marker(self._target, manifest.type, hour)
        except BucketRemoved as error:
            existing, outcome = error.bucket.marker.encode(), CopyOutcome.REMOVED
        except NotClosed:
            if self._target.exists(folder):
                raise Finding(
                    f"{self._target.url(folder)} exists and has no {MARKER}; nothing was replaced. "
                    "Move the folder away"
                ) from None
            return None
        if existing != marker:
            raise self._other_bucket(folder)
        if outcome is CopyOutcome.PRESENT:
            self._check_sizes(folder, manifest, marker)
        return outcome

    def _other_bucket(self, folder: str) -> Finding:
        return Finding(
            f"{self._target.url(folder)} is another bucket than {self._source.url(folder)}; "
            "nothing was replaced. Copy to an empty folder"
        )

    def _check_sizes(self, folder: str, manifest: Manifest, marker: bytes) -> None:
        found = list_bucket_files(self._target, folder)
        wanted = manifest.file_sizes | {MARKER: len(marker)}
        if found != wanted:
            raise Finding(
                f"{self._target.url(folder)} contains {found}, but its marker lists {wanted}"
            )

    def _copy_file(self, folder: str, temporary: str, file: BucketFile | ParquetFile) -> None:
        path = f"{temporary}/{file.name}"
        with (
            self._source.open(f"{folder}/{file.name}", size=file.bytes) as opened,
            self._target.create(path, unpublished=True) as created,
        ):
            reader = _write_all(opened, created)
        _check_digest(self._source, f"{folder}/{file.name}", reader, file)
        with self._target.open(path, size=file.bytes) as opened:
            reader = DigestingReader(opened)
            reader.read_rest()
        _check_digest(self._target, path, reader, file)


def _write_all(source: BinaryIO, target: BinaryIO) -> DigestingReader:
    reader = DigestingReader(source)
    while chunk := reader.read(_READ_BYTES):
        target.write(chunk)
    return reader


def _check_digest(
    storage: Storage, path: str, read: DigestingReader, file: BucketFile | ParquetFile
) -> None:
    found = (read.bytes, read.digest.hexdigest())
    if found != (file.bytes, file.blake2b):
        raise Finding(
            f"{storage.url(path)} has {found[0]} bytes with blake2b {found[1]}, but the marker "
            f"states {file.bytes} bytes with {file.blake2b}; the bucket was not copied. Restore "
            "the file from a copy"
        )


def list_earlier_runs(target: Storage) -> list[str]:
    """Return the temporary folders of other copies on a storage.

    They belong to copies that are running, or that were interrupted. The latter can be deleted.

    Args:
        target: Storage to copy to.

    Returns:
        Paths relative to the storage root; empty if there are none.

    Raises:
        StorageError: Storage is unavailable or denies access.
    """
    return [
        f"{COPIES_FOLDER}/{entry.name}"
        for entry in list_if_exists(target, COPIES_FOLDER)
        if entry.is_folder
    ]


def copy_folder(source: Storage, target: Storage, folder: str) -> tuple[int, int]:
    """Copy all files below a folder that the target does not have, and compare the others.

    Use this function for internal files of the ETL, while no driver is running. The bytes are read
    back from the target.

    Args:
        source: Storage to copy from.
        target: Storage to copy to.
        folder: Path of the folder. It may be missing.

    Returns:
        Number of copied files, and number of files that the target had already.

    Raises:
        Finding: A file on the target has other content.
        StorageError: A storage operation failed. A new call continues.
    """
    copied = map_concurrently(
        lambda path: _copy_missing(source, target, path), _walk_files(source, folder)
    )
    outcomes = list(copied)
    return sum(outcomes), len(outcomes) - sum(outcomes)


def _copy_missing(source: Storage, target: Storage, path: str) -> bool:
    is_copied = not target.exists(path)
    if is_copied:
        with source.open(path) as opened, target.create(path) as created:
            digest = _write_all(opened, created).digest.hexdigest()
    else:
        digest = _digest(source, path)
    if digest != _digest(target, path):
        raise Finding(
            f"{target.url(path)} differs from {source.url(path)}; nothing was replaced. Copy to an "
            "empty folder, and stop the ETL while its files are copied"
        )
    return is_copied


def _digest(storage: Storage, path: str) -> str:
    with storage.open(path) as opened:
        reader = DigestingReader(opened)
        reader.read_rest()
    return reader.digest.hexdigest()


def _walk_files(storage: Storage, folder: str) -> Iterator[str]:
    for entry in list_if_exists(storage, folder):
        path = f"{folder}/{entry.name}"
        if entry.is_folder:
            yield from _walk_files(storage, path)
        else:
            yield path
