"""What is left of a lost ledger on storage: markers of closed buckets, staged files, files of
unaudited rows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest, Previous
from hourmark_etl.buckets.reader import BadMarker, decoded_manifest, list_hours, read_marker
from hourmark_etl.errors import Unreadable
from hourmark_etl.folders import STAGING_FOLDER, UNAUDITED_FOLDER
from hourmark_etl.model import EARLIEST_MS, AuditOffsets, Span, StagedBatch
from hourmark_etl.staging.files import read_note
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.storage import Storage, list_if_exists, map_concurrently

Key = tuple[str, int]  # topic id, partition
_UNAUDITED_NAME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2}T\d{2})(?:-(\d{2}))?-(\d{12})-[0-9a-f]{32}\.parquet"
)
_FOLDER: Final = re.compile(r"(\d{12})-")
_FOLDERS_AT_ONCE: Final = 64  # batches, of a few files each


@dataclasses.dataclass(frozen=True)
class Chain:
    """A type's closed buckets: the first, the last, and offsets below which every record stands in
    one of them.

    `closed_next`: a freeze lists all that is staged of its hour and those before. What was staged
    when the bucket was closed cannot be of an hour that began `EARLIEST_MS` later, so it is in that
    bucket or in one of those that were closed since.
    """

    first: Hour
    last: Manifest
    frontier: Hour
    closed_next: Mapping[Key, int]

    @classmethod
    def of(cls, closed: Sequence[tuple[Hour, Manifest]]) -> Chain:
        """From all markers, in turn."""
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
        """Below which promises of closed hours are kept."""
        return audit_next(self.last)


def audit_next(manifest: Manifest) -> AuditOffsets:
    """The central audit offsets of its cut."""
    return AuditOffsets.of(manifest.evidence.audit_next)


def read_chain(
    storage: Storage, event_type: str, bucket_seconds: int
) -> list[tuple[Hour, Manifest]]:
    """The type's markers, in turn, each as the one after it says that it is.

    BadMarker or NotClosed where a bucket's folder holds none that can be read; BadMarker where it
    is another than was chained.
    """
    hours = list_hours(storage, event_type, bucket_seconds)
    markers = list(map_concurrently(lambda hour: read_marker(storage, event_type, hour), hours))
    chain = [
        (hour, decoded_manifest(storage, event_type, hour, marker))
        for hour, marker in zip(hours, markers, strict=True)
    ]
    for marker, ((hour, _), (after, manifest)) in zip(markers, pairwise(chain), strict=False):
        if hour.next() == after and manifest.previous != Previous.of(str(hour), marker):
            raise BadMarker(
                f"{event_type} {after} does not follow the marker of {hour} as it stands: one "
                "of the two was changed "
                f"since; bring it back from a copy. `hourmark bucket verify {event_type} "
                f"{hour}` tells more"
            )
    return chain


def batch_folders(storage: Storage) -> list[str]:
    """Folders of staged files, committed or not."""
    return [
        f"{STAGING_FOLDER}/{batch.name}"
        for batch in list_if_exists(storage, STAGING_FOLDER)
        if batch.is_folder
    ]


def read_notes(storage: Storage, folders: Sequence[str]) -> Iterator[StagedNote | Unreadable]:
    """What every staged file in these folders says of itself, or why it is not to be read.

    In turn, and few at once in memory.
    """

    def notes(folder: str) -> list[StagedNote | Unreadable]:
        return [_note(storage, f"{folder}/{file.name}") for file in list_if_exists(storage, folder)]

    for first in range(0, len(folders), _FOLDERS_AT_ONCE):
        for of_folder in map_concurrently(notes, folders[first : first + _FOLDERS_AT_ONCE]):
            yield from of_folder


def batch_of(note: StagedNote) -> StagedBatch:
    """What is committed of one file, without any position."""
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


def epochs(storage: Storage, bucket_seconds: int) -> set[int]:
    """Of leases that the lost ledger gave: names of batches and of unaudited rows hold them."""
    batches = {
        int(match[1])
        for entry in list_if_exists(storage, STAGING_FOLDER)
        if (match := _FOLDER.match(entry.name))
    }
    return batches | {file.epoch for file in unaudited_files(storage, bucket_seconds)}


@dataclasses.dataclass(frozen=True, slots=True)
class UnauditedLeft:
    """A file of unaudited rows. A proof that failed may have left one too: then there are several
    of one hour.
    """

    event_type: str
    hour: Hour
    epoch: int
    path: str


def unaudited_files(storage: Storage, bucket_seconds: int) -> Iterator[UnauditedLeft]:
    """All that stand in `_unaudited/<type>/` (see `hourmark_etl.closing.proof.unaudited`)."""
    for folder in list_if_exists(storage, UNAUDITED_FOLDER):
        for entry in list_if_exists(storage, f"{UNAUDITED_FOLDER}/{folder.name}"):
            if match := _UNAUDITED_NAME.fullmatch(entry.name):
                hour = Hour.parse(match[1] + (f":{match[2]}" if match[2] else ""), bucket_seconds)
                yield UnauditedLeft(
                    folder.name,
                    hour,
                    int(match[3]),
                    f"{UNAUDITED_FOLDER}/{folder.name}/{entry.name}",
                )


def uncovered(start: int, end: int, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """What of the offsets [start, end) lies in none of the spans of their partition."""
    found = []
    for s in sorted(spans, key=lambda s: s.start):
        if start < min(s.start, end):
            found.append((start, min(s.start, end)))
        start = max(start, s.end)
    return [*found, (start, end)] if start < end else found
