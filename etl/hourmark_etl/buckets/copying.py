"""Copies closed buckets to another storage, with verified content and an intact chain of markers.

A bucket is copied to `_copies/RUN/…` first. The bytes that are read are compared with the digests
in the marker, and read back from the target. Then one rename publishes the bucket, so the target
never has a part of a bucket. Nothing on the target is replaced. What an earlier run has copied is
compared by its marker and the sizes of its files, and not copied again.

Buckets of a type are copied in the order of their hours, after its tombstones, so an interrupted
copy is a valid beginning of the chain.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Manifest, PreviousMarker
from hourmark_etl.buckets.avro_container import DigestingReader
from hourmark_etl.buckets.reader import decode_manifest, list_bucket_files, read_marker
from hourmark_etl.buckets.tombstones import find_tombstone, list_removed_dates, tombstone_path
from hourmark_etl.storage import (
    AlreadyExists,
    NotFound,
    Storage,
    list_if_exists,
    map_concurrently,
)
from hourmark_etl.storage.folders import COPIES_FOLDER

_READ_BYTES: Final = 1 << 20


class CopyOutcome(enum.StrEnum):
    """What was done with a bucket.

    Attributes:
        COPIED: The bucket was copied and verified.
        PRESENT: The target has the same bucket already.
    """

    COPIED = "copied"
    PRESENT = "present"


class _File(NamedTuple):
    name: str
    bytes: int
    blake2b: str


class BucketCopier:
    """Copier of closed buckets from one storage to another.

    Args:
        source: Storage with the buckets. It is only read.
        target: Storage to copy to.
        run: Unique name of this run, for its temporary folder on the target.
    """

    def __init__(self, source: Storage, target: Storage, run: str) -> None:
        self._source, self._target, self._run = source, target, run

    @property
    def temporary_folder(self) -> str:
        """Return the path of the temporary folder on the target."""
        return f"{COPIES_FOLDER}/{self._run}"

    def copy_tombstones(self, event_type: str) -> int:
        """Copy all tombstones of an event type. Call this before its buckets are copied.

        Args:
            event_type: Name of the event type.

        Returns:
            Number of tombstones that the target did not have.

        Raises:
            BadTombstone: A tombstone is damaged.
            Finding: The target has another tombstone of a day.
            StorageError: A storage operation failed.
        """
        return sum(
            self._copy_tombstone(event_type, date)
            for date in list_removed_dates(self._source, event_type)
        )

    def copy_buckets(
        self, event_type: str, hours: Sequence[Hour]
    ) -> Iterator[tuple[Hour, Manifest, CopyOutcome]]:
        """Copy buckets of an event type, and yield each one that is complete on the target.

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
        before: PreviousMarker | None = None
        for hour in hours:
            marker = read_marker(self._source, event_type, hour)
            manifest = decode_manifest(self._source, event_type, hour, marker)
            if before is not None and manifest.previous != before:
                raise Finding(
                    f"{event_type} {hour} does not refer to the marker of {before.hour}, so its "
                    f"chain is broken; `hourmark bucket verify {event_type}` lists all problems"
                )
            before = PreviousMarker.from_marker(str(hour), marker)
            yield hour, manifest, self._copy_bucket(hour, manifest, marker)

    def delete_temporary_files(self) -> None:
        """Delete the temporary folder of this run."""
        self._target.delete(self.temporary_folder)

    def _copy_tombstone(self, event_type: str, date: str) -> bool:
        path = tombstone_path(event_type, date)
        tombstone = find_tombstone(self._source, event_type, date)
        if tombstone is None:
            return False  # deleted since
        content = tombstone.encode()
        try:
            self._target.write_new(path, content)
        except AlreadyExists:
            if self._target.read(path) != content:
                raise Finding(
                    f"{self._target.url(path)} is another tombstone than {self._source.url(path)}; "
                    "nothing was replaced. Copy to an empty folder"
                ) from None
            return False
        return True

    def _copy_bucket(self, hour: Hour, manifest: Manifest, marker: bytes) -> CopyOutcome:
        folder = hour.bucket_path(manifest.type)
        files = [_File(f.name, f.bytes, f.blake2b) for f in (*manifest.files, *manifest.parquet)]
        if self._is_present(folder, files, marker):
            return CopyOutcome.PRESENT
        temporary = f"{self.temporary_folder}/{folder}"
        for _ in map_concurrently(lambda file: self._copy_file(folder, temporary, file), files):
            pass
        self._target.write_new(f"{temporary}/{MARKER}", marker, unpublished=True)
        self._check_sizes(temporary, files, marker)
        try:
            self._target.rename_new(temporary, folder)
        except AlreadyExists:
            if not self._is_present(folder, files, marker):
                raise  # it has vanished since
            return CopyOutcome.PRESENT  # another run was faster
        return CopyOutcome.COPIED

    def _is_present(self, folder: str, files: Sequence[_File], marker: bytes) -> bool:
        url = self._target.url(folder)
        try:
            existing = self._target.read(f"{folder}/{MARKER}")
        except NotFound:
            if self._target.exists(folder):
                raise Finding(
                    f"{url} exists and has no {MARKER}; nothing was replaced. Move the folder away"
                ) from None
            return False
        if existing != marker:
            raise Finding(
                f"{url} is another bucket than {self._source.url(folder)}; nothing was replaced. "
                "Copy to an empty folder"
            )
        self._check_sizes(folder, files, marker)
        return True

    def _check_sizes(self, folder: str, files: Sequence[_File], marker: bytes) -> None:
        found = list_bucket_files(self._target, folder)
        wanted = {file.name: file.bytes for file in files} | {MARKER: len(marker)}
        if found != wanted:
            raise Finding(
                f"{self._target.url(folder)} contains {found}, but its marker lists {wanted}"
            )

    def _copy_file(self, folder: str, temporary: str, file: _File) -> None:
        path = f"{temporary}/{file.name}"
        with self._source.open(f"{folder}/{file.name}", size=file.bytes) as opened:
            reader = DigestingReader(opened)
            with self._target.create(path, unpublished=True) as created:
                while chunk := reader.read(_READ_BYTES):
                    created.write(chunk)
        _check_digest(self._source, f"{folder}/{file.name}", reader, file)
        with self._target.open(path, size=file.bytes) as opened:
            reader = DigestingReader(opened)
            while reader.read(_READ_BYTES):
                pass
        _check_digest(self._target, path, reader, file)


def _check_digest(storage: Storage, path: str, read: DigestingReader, file: _File) -> None:
    found = (read.bytes, read.digest.hexdigest())
    if found != (file.bytes, file.blake2b):
        raise Finding(
            f"{storage.url(path)} has {found[0]} bytes with blake2b {found[1]}, but the marker "
            f"states {file.bytes} bytes with {file.blake2b}; the bucket was not copied. Restore the file "
            "from a copy"
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
            while chunk := opened.read(_READ_BYTES):
                created.write(chunk)
    if _digest(source, path) != _digest(target, path):
        raise Finding(
            f"{target.url(path)} differs from {source.url(path)}; nothing was replaced. Copy to an "
            "empty folder, and stop the ETL while its files are copied"
        )
    return is_copied


def _digest(storage: Storage, path: str) -> str:
    with storage.open(path) as opened:
        reader = DigestingReader(opened)
        while reader.read(_READ_BYTES):
            pass
    return reader.digest.hexdigest()


def _walk_files(storage: Storage, folder: str) -> Iterator[str]:
    for entry in list_if_exists(storage, folder):
        path = f"{folder}/{entry.name}"
        if entry.is_folder:
            yield from _walk_files(storage, path)
        else:
            yield path
