"""Reads what a lost ledger left on storage: markers, staged files, files of unaudited rows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest, PreviousMarker
from hourmark_etl.buckets.reader import BadMarker, decode_manifest, list_hours, read_marker
from hourmark_etl.errors import Unreadable
from hourmark_etl.folders import STAGING_FOLDER, UNAUDITED_FOLDER
from hourmark_etl.model import EARLIEST_MS, AuditOffsets, OffsetSpan, StagedBatch
from hourmark_etl.staging.files import read_note
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.storage import Storage, at_once, entries_of

Key = tuple[str, int]  # topic id, partition
_UNAUDITED_NAME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2}T\d{2})(?:-(\d{2}))?-(\d{12})-[0-9a-f]{32}\.parquet"
)
_FOLDER: Final = re.compile(r"(\d{12})-")
_FOLDERS_AT_ONCE: Final = 64  # batches, of a few files each


@dataclasses.dataclass(frozen=True)
class BucketChain:
    """The consecutive closed buckets of an event type.

    Attributes:
        first: Hour of the first bucket.
        last: Manifest of the last bucket.
        frontier: The hour after the last bucket.
        closed_next: By topic id and partition, the offset below which every record is in one of the
            buckets. What was staged when a bucket closed cannot belong to an hour that began
            `EARLIEST_MS` later.
    """

    first: Hour
    last: Manifest
    frontier: Hour
    closed_next: Mapping[Key, int]

    @classmethod
    def from_markers(cls, closed: Sequence[tuple[Hour, Manifest]]) -> BucketChain:
        """Create the chain from hours and manifests of all buckets, in order; at least one."""
        frontier = closed[-1][0].next()
        early = [m for _, m in closed if m.closed_at_ms <= frontier.start_s * 1000 - EARLIEST_MS]
        offsets = early[-1].offsets if early else ()
        return cls(
            closed[0][0],
            closed[-1][1],
            frontier,
            {(o.topic_id, o.partition): o.next for o in offsets},
        )

    @property
    def settled_next(self) -> AuditOffsets:
        """Return the audit offsets below which all promises of closed hours are settled."""
        return audit_next(self.last)


def audit_next(manifest: Manifest) -> AuditOffsets:
    """Return the audit offsets of the manifest's cut."""
    return AuditOffsets.from_offsets(manifest.evidence.audit_next)


def read_chain(
    storage: Storage, event_type: str, bucket_seconds: int
) -> list[tuple[Hour, Manifest]]:
    """Return the hours and manifests of a type's buckets, and verify their links.

    Args:
        storage: The storage.
        event_type: Name of the event type.
        bucket_seconds: Length of a bucket.

    Returns:
        Pairs of hour and manifest in ascending order; empty if the type has no bucket.

    Raises:
        NotClosed: A bucket's folder has no marker.
        BadMarker: A marker is invalid, or not the one that the next marker refers to.
    """
    hours = list_hours(storage, event_type, bucket_seconds)
    markers = list(at_once(lambda hour: read_marker(storage, event_type, hour), hours))
    chain = [
        (hour, decode_manifest(storage, event_type, hour, marker))
        for hour, marker in zip(hours, markers, strict=True)
    ]
    for marker, ((hour, _), (after, manifest)) in zip(markers, pairwise(chain), strict=False):
        if hour.next() == after and manifest.previous != PreviousMarker.from_marker(
            str(hour), marker
        ):
            raise BadMarker(
                f"{event_type} {after} does not follow the marker of {hour} as it stands: one "
                "of the two was changed "
                f"since; bring it back from a copy. `hourmark bucket verify {event_type} "
                f"{hour}` shows details"
            )
    return chain


def batch_folders(storage: Storage) -> list[str]:
    """Return the paths of all folders of staged files, committed or not."""
    return [
        f"{STAGING_FOLDER}/{batch.name}"
        for batch in entries_of(storage, STAGING_FOLDER)
        if batch.is_folder
    ]


def read_notes(storage: Storage, folders: Sequence[str]) -> Iterator[StagedNote | Unreadable]:
    """Yield the metadata of every staged file in the folders, or the error of an unreadable file.

    Files are read in the order of the folders, and only few are held in memory.
    """

    def notes(folder: str) -> list[StagedNote | Unreadable]:
        return [_note(storage, f"{folder}/{file.name}") for file in entries_of(storage, folder)]

    for first in range(0, len(folders), _FOLDERS_AT_ONCE):
        for of_folder in at_once(notes, folders[first : first + _FOLDERS_AT_ONCE]):
            yield from of_folder


def single_file_batch(note: StagedNote) -> StagedBatch:
    """Create a batch that commits a single file without moving any position."""
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


def used_epochs(storage: Storage, bucket_seconds: int) -> set[int]:
    """Return the lease epochs that occur in the names of staging folders and unaudited files."""
    batches = {
        int(match[1])
        for entry in entries_of(storage, STAGING_FOLDER)
        if (match := _FOLDER.match(entry.name))
    }
    return batches | {file.epoch for file in scan_unaudited_files(storage, bucket_seconds)}


@dataclasses.dataclass(frozen=True, slots=True)
class ScannedUnauditedFile:
    """A file of unaudited rows on storage.

    Failed proofs leave files too, so an hour may have several.

    Attributes:
        event_type: Event type of the bucket.
        hour: Hour of the bucket.
        epoch: Epoch of the closer's lease that wrote the file.
        path: Path relative to the storage root.
    """

    event_type: str
    hour: Hour
    epoch: int
    path: str


def scan_unaudited_files(storage: Storage, bucket_seconds: int) -> Iterator[ScannedUnauditedFile]:
    """Yield all files of unaudited rows on storage; files with other names are ignored."""
    for folder in entries_of(storage, UNAUDITED_FOLDER):
        for entry in entries_of(storage, f"{UNAUDITED_FOLDER}/{folder.name}"):
            if match := _UNAUDITED_NAME.fullmatch(entry.name):
                hour = Hour.parse(match[1] + (f":{match[2]}" if match[2] else ""), bucket_seconds)
                yield ScannedUnauditedFile(
                    folder.name,
                    hour,
                    int(match[3]),
                    f"{UNAUDITED_FOLDER}/{folder.name}/{entry.name}",
                )


def uncovered_offsets(start: int, end: int, spans: Sequence[OffsetSpan]) -> list[tuple[int, int]]:
    """Return the parts of the offsets [start, end) that no span covers, in ascending order.

    Args:
        start: First offset.
        end: Offset after the last one.
        spans: Spans of the same partition, in any order.
    """
    found = []
    for s in sorted(spans, key=lambda s: s.start):
        if start < min(s.start, end):
            found.append((start, min(s.start, end)))
        start = max(start, s.end)
    return [*found, (start, end)] if start < end else found
