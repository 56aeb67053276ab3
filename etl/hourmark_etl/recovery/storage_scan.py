"""Reads the files on storage from which a lost ledger is rebuilt.

These are markers, staged files, and files of unaudited events.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from hourmark.records.hours import Hour, group_consecutive
from hourmark.records.manifest import Manifest, PreviousMarker
from hourmark_etl.buckets.reader import BadMarker, decode_manifest, list_hours, read_marker
from hourmark_etl.buckets.tombstones import read_removed_buckets
from hourmark_etl.errors import Unreadable
from hourmark_etl.model import EARLIEST_MS, AuditOffsets, OffsetSpan, StagedBatch
from hourmark_etl.staging.files import read_note
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.storage import Storage, list_if_exists, map_concurrently
from hourmark_etl.storage.folders import STAGING_FOLDER, UNAUDITED_FOLDER

Key = tuple[str, int]  # topic id, partition
_UNAUDITED_NAME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2}T\d{2})(?:-(\d{2}))?-(\d{12})-[0-9a-f]{32}\.parquet"
)
_FOLDER: Final = re.compile(r"(\d{12})-")
_FOLDERS_AT_ONCE: Final = 64  # batches, of a few files each


@dataclasses.dataclass(frozen=True)
class BucketChain:
    """The closed buckets of one event type on storage, from the first to the last hour.

    Attributes:
        first: Hour of the first bucket.
        last: Manifest of the last bucket.
        frontier: The hour after the last bucket.
        closed_next: Offset by topic id and partition; the buckets contain all events at lower
            offsets. The offsets are from the manifest of the last bucket that was closed at least
            one hour (`EARLIEST_MS`) before the start of `frontier`, because no event that was read
            from Kafka by then belongs to a later bucket. Empty if there is no such bucket.
        runs: First and last hour of each series of buckets without a gap, ascending. The hours
            between two series had no events and were skipped.
    """

    first: Hour
    last: Manifest
    frontier: Hour
    closed_next: Mapping[Key, int]
    runs: tuple[tuple[Hour, Hour], ...]

    @classmethod
    def from_markers(cls, closed: Sequence[tuple[Hour, Manifest]]) -> BucketChain:
        """Create a chain from the closed buckets of an event type.

        Args:
            closed: Hour and manifest of each bucket, in ascending order. At least one bucket is
                required.
        """
        frontier = closed[-1][0].next()
        early = [m for _, m in closed if m.closed_at_ms <= frontier.start_s * 1000 - EARLIEST_MS]
        offsets = early[-1].offsets if early else ()
        return cls(
            closed[0][0],
            closed[-1][1],
            frontier,
            {(o.topic_id, o.partition): o.next for o in offsets},
            tuple(group_consecutive(hour for hour, _ in closed)),
        )

    def last_before(self, hour: Hour) -> Hour | None:
        """Return the latest hour before a given hour that has a bucket; None if there is none."""
        before = [(first, last) for first, last in self.runs if first < hour]
        return min(before[-1][1], hour.previous()) if before else None

    @property
    def settled_next(self) -> AuditOffsets:
        """Return the end offsets of the audit records that were compared with the closed buckets.

        An audit record states how many events a byte range of a log file contains for each event
        type and hour.

        Returns:
            End offset (exclusive) in the audit topic of each site (edge cluster) on the central
            cluster, from the manifest of the last bucket.
        """
        return audit_next(self.last)


def audit_next(manifest: Manifest) -> AuditOffsets:
    """Return the end offsets of the audit records that were compared with a bucket.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour.

    Args:
        manifest: Manifest of the closed bucket.

    Returns:
        End offset (exclusive) in the audit topic of each site (edge cluster) on the central
        cluster.
    """
    return AuditOffsets.from_offsets(manifest.evidence.audit_next)


def read_chain(
    storage: Storage, event_type: str, bucket_seconds: int
) -> list[tuple[Hour, Manifest]]:
    """Read the manifests of all buckets of an event type, and verify that they form a chain.

    The manifest of a closed bucket is stored in its `_SUCCESS` file. It contains a digest of the
    previous bucket's `_SUCCESS` file. Those of removed buckets are in tombstones.

    Args:
        storage: Storage with the buckets.
        event_type: Name of the event type.
        bucket_seconds: Length of a bucket in seconds.

    Returns:
        Pairs of hour and manifest in ascending order, including removed buckets; empty if the type
        has had no bucket.

    Raises:
        BadTombstone: A tombstone is damaged.
        NotClosed: The folder of a bucket has no `_SUCCESS` file.
        BadMarker: A `_SUCCESS` file is invalid, or the next bucket contains a different digest of
            it.
        StorageError: Storage is unavailable or denies access.
    """
    removed = read_removed_buckets(storage, event_type, bucket_seconds)
    hours = sorted({*list_hours(storage, event_type, bucket_seconds), *removed})

    def read(hour: Hour) -> bytes:
        gone = removed.get(hour)
        return read_marker(storage, event_type, hour) if gone is None else gone.marker.encode()

    markers = list(map_concurrently(read, hours))
    chain = [
        (hour, decode_manifest(storage, event_type, hour, marker))
        for hour, marker in zip(hours, markers, strict=True)
    ]
    for marker, ((hour, _), (after, manifest)) in zip(markers, pairwise(chain), strict=False):
        if (hour.next() == after or has_predecessor(manifest, hour)) and (
            manifest.previous != PreviousMarker.from_marker(str(hour), marker)
        ):
            raise BadMarker(
                f"{event_type} {after} does not refer to the current marker of {hour}: one of "
                "the two markers was changed; restore it from a copy. `hourmark bucket verify "
                f"{event_type} {hour}` shows details"
            )
    return chain


def has_predecessor(manifest: Manifest, hour: Hour) -> bool:
    """Return whether a bucket's manifest names the bucket of a given hour as its predecessor.

    The manifest of each bucket refers to the previous bucket of the same event type.

    Args:
        manifest: Manifest of the later bucket.
        hour: Hour of the earlier bucket.
    """
    return manifest.previous is not None and manifest.previous.hour == str(hour)


def list_batch_folders(storage: Storage) -> list[str]:
    """Return the folders on storage that contain staged files.

    A staged file contains records that were copied from Kafka. All folders are returned, including
    those that are not recorded in the ledger (the ETL's state database).

    Args:
        storage: Storage to list.

    Returns:
        Paths relative to the storage root; empty if there are no such folders.

    Raises:
        StorageError: Storage is unavailable.
    """
    return [
        f"{STAGING_FOLDER}/{batch.name}"
        for batch in list_if_exists(storage, STAGING_FOLDER)
        if batch.is_folder
    ]


def read_notes(storage: Storage, folders: Sequence[str]) -> Iterator[StagedNote | Unreadable]:
    """Yield the description of each staged file in the given folders.

    A staged file contains records that were copied from Kafka. To limit memory use, only a few
    folders are read at a time.

    Args:
        storage: Storage with the staged files.
        folders: Paths of the folders, relative to the storage root.

    Yields:
        One description per file. If a file is missing or damaged, an `Unreadable` error is yielded
        instead; it is not raised.

    Raises:
        StorageError: Storage is unavailable.
    """

    def notes(folder: str) -> list[StagedNote | Unreadable]:
        return [_note(storage, f"{folder}/{file.name}") for file in list_if_exists(storage, folder)]

    for first in range(0, len(folders), _FOLDERS_AT_ONCE):
        for of_folder in map_concurrently(notes, folders[first : first + _FOLDERS_AT_ONCE]):
            yield from of_folder


def make_single_file_batch(note: StagedNote) -> StagedBatch:
    """Create a batch that adds one existing staged file to the ledger (the ETL's state database).

    A staged file contains records that were copied from Kafka. The batch does not change the
    staging positions (next offsets to stage) in the ledger.

    Args:
        note: Description of the file.

    Returns:
        A batch for `insert_staged_files`.
    """
    return StagedBatch(
        folder=note.path.rpartition("/")[0],
        starts=(),
        ends=(),
        files=(note.file,),
        groups=note.groups,
        audit_groups=note.audit_groups,
        reports=(),
    )


def _note(storage: Storage, path: str) -> StagedNote | Unreadable:
    try:
        return read_note(storage, path)
    except Unreadable as error:
        return error


def find_used_epochs(storage: Storage, bucket_seconds: int) -> set[int]:
    """Return all lease epochs that appear in the names of folders and files on storage.

    A lease epoch is a fencing token: a number that increases each time a process takes over a
    lease. A rebuilt ledger (the ETL's state database) must use higher epochs than these. Epochs
    appear in the names of folders with staged files (copies of Kafka records), and of files with
    unaudited events (events without an audit record).

    Args:
        storage: Storage to list.
        bucket_seconds: Length of a bucket in seconds.

    Returns:
        The epochs; empty if there are no such folders and files.
    """
    batches = {
        int(match[1])
        for entry in list_if_exists(storage, STAGING_FOLDER)
        if (match := _FOLDER.match(entry.name))
    }
    return batches | {file.epoch for file in scan_unaudited_files(storage, bucket_seconds)}


@dataclasses.dataclass(frozen=True, slots=True)
class ScannedUnauditedFile:
    """A file on storage with the events of one bucket that have no audit record.

    An audit record states how many events a byte range of a log file contains. Failed attempts to
    close the bucket also leave such files, so a bucket may have several of them.

    Attributes:
        event_type: Event type of the bucket.
        hour: Hour of the bucket.
        epoch: Lease epoch (fencing token) of the process that wrote the file.
        path: Path relative to the storage root.
    """

    event_type: str
    hour: Hour
    epoch: int
    path: str


def scan_unaudited_files(storage: Storage, bucket_seconds: int) -> Iterator[ScannedUnauditedFile]:
    """Yield the files on storage that contain unaudited events, without opening them.

    Unaudited events had no audit record when the content of their bucket was fixed. Files with
    unexpected names are skipped.

    Args:
        storage: Storage to list.
        bucket_seconds: Length of a bucket in seconds.

    Yields:
        The properties of each file, derived from its path; nothing if there are no such files.
    """
    for folder in list_if_exists(storage, UNAUDITED_FOLDER):
        for entry in list_if_exists(storage, f"{UNAUDITED_FOLDER}/{folder.name}"):
            if match := _UNAUDITED_NAME.fullmatch(entry.name):
                hour = Hour.parse(match[1] + (f":{match[2]}" if match[2] else ""), bucket_seconds)
                yield ScannedUnauditedFile(
                    folder.name,
                    hour,
                    int(match[3]),
                    f"{UNAUDITED_FOLDER}/{folder.name}/{entry.name}",
                )


def find_uncovered_offsets(
    start: int, end: int, spans: Sequence[OffsetSpan]
) -> list[tuple[int, int]]:
    """Return the parts of an offset range that no span covers.

    Args:
        start: Start of the range (inclusive).
        end: End of the range (exclusive).
        spans: Offset spans of the same partition, in any order.

    Returns:
        Pairs of start (inclusive) and end (exclusive), in ascending order; empty if the range is
        completely covered.
    """
    found = []
    for s in sorted(spans, key=lambda s: s.start):
        if start < min(s.start, end):
            found.append((start, min(s.start, end)))
        start = max(start, s.end)
    return [*found, (start, end)] if start < end else found
