"""Data about closed buckets that later hours need.

- Index segments: which closed buckets may hold ids of an origin hour, and where their ids are
  indexed. A cache, so rows may be deleted.
- Missing ranges: what closed buckets lack, from their manifests.
- Files of unaudited rows, which a later promise may need (`hourmark_etl.closing.proof.unaudited`).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic_core import from_json
from sqlalchemy import Connection, and_, delete, func, select

from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import (
    bucket_rows,
    find_buckets_with_late_events,
    iterate_pair_tables,
    make_damaged_bucket_error,
    read_bucket_manifests,
)
from hourmark_etl.ledger.database import Database, Lease, delete_rows, replace_rows
from hourmark_etl.ledger.frontier_rows import decode_audit_offsets, encode_further_sites
from hourmark_etl.model import FIRST_SITE, AuditOffsets, IncompleteRanges, from_columns

# In sentences of version 0.3.0: range ids, and the words of those that stand for ranges without a
# name.
_RANGE_ID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")
_MORE_IN_0_3_0: Final = ("more ranges", "accepted: ", "are lost with the staged file")


@dataclasses.dataclass(frozen=True, slots=True)
class IdIndexSegment:
    """The rows of an id index file that contain the event ids of one closed bucket.

    An id index file contains the sorted event ids of closed buckets. It is used to find late
    duplicates.

    Attributes:
        path: Path of the index file, relative to the storage root.
        first_row: Index of the segment's first row in the file.
        rows: Number of rows in the segment.
    """

    path: str
    first_row: int
    rows: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClosedBucket:
    """A closed bucket, with the files and index segments in which its event ids can be looked up.

    Attributes:
        event_type: Name of the event type.
        hour_s: Start of the bucket's hour, Unix seconds.
        origin_hours: Those of the requested hours whose events the bucket contains, ascending.
        events: Number of events in all files.
        index: Segments of id index files that contain the bucket's event ids.
        files: Pairs of a bucket file's path, relative to the storage root, and its digest.
    """

    event_type: str
    hour_s: int
    origin_hours: tuple[Hour, ...]
    events: int
    index: tuple[IdIndexSegment, ...]
    files: tuple[tuple[str, str], ...]

    @property
    def is_indexed(self) -> bool:
        """Return whether event ids can be looked up in the id index alone.

        This is the case if the index covers every event of the bucket. Otherwise, the bucket's
        files must be read.
        """
        return sum(run.rows for run in self.index) == self.events


def closed_buckets(
    database: Database, origin_hours_s: Mapping[str, Collection[int]], bucket_seconds: int
) -> dict[str, tuple[ClosedBucket, ...]]:
    """Return the closed, non-empty buckets that may contain events of the given hours.

    For each hour, these are the hour's own bucket, and later buckets that contain late events of
    the hour.

    Args:
        database: The ledger (the ETL's state database).
        origin_hours_s: Maps each event type to hours of event time, in Unix seconds.
        bucket_seconds: Length of a bucket in seconds.

    Returns:
        Buckets by event type, in ascending order of their hours. A type without such buckets has an
        empty tuple; a type without requested hours is omitted.

    Raises:
        DamagedRow: A bucket's row does not match its digest or contains no valid manifest.
    """
    origins = {event_type: set(of) for event_type, of in origin_hours_s.items() if of}
    with database.reading() as connection:
        holds = find_buckets_with_late_events(connection, origins)
        for event_type, of in origins.items():
            for origin in of:
                holds[event_type, origin].add(origin)
        chosen = {
            key: m
            for key, text in read_bucket_manifests(connection, holds).items()
            if (m := _decode_manifest(*key, text)).events
        }
        runs = _runs(connection, chosen)
    found: dict[str, list[ClosedBucket]] = {event_type: [] for event_type in origins}
    for event_type, hour_s in sorted(chosen):
        m, folder = chosen[event_type, hour_s], Hour(hour_s, bucket_seconds).bucket_path(event_type)
        labels = {str(Hour(hour_s, bucket_seconds)), *m.late}
        held = (Hour(origin, bucket_seconds) for origin in sorted(holds[event_type, hour_s]))
        found[event_type].append(
            ClosedBucket(
                event_type=event_type,
                hour_s=hour_s,
                origin_hours=tuple(hour for hour in held if str(hour) in labels),
                events=m.events,
                index=tuple(runs[event_type, hour_s]),
                files=tuple((f"{folder}/{name}", digest) for name, digest in m.files),
            )
        )
    return {event_type: tuple(of) for event_type, of in found.items()}


def _runs(
    connection: Connection, buckets: Collection[tuple[str, int]]
) -> dict[tuple[str, int], list[IdIndexSegment]]:
    indexes = tables.id_indexes.c
    runs = defaultdict[tuple[str, int], list[IdIndexSegment]](list)
    query = select(indexes.type, indexes.hour, indexes.path, indexes.first_row, indexes.rows)
    for one in iterate_pair_tables(buckets):
        own = query.join(one, and_(indexes.type == one.c.type, indexes.hour == one.c.at))
        for event_type, hour, *run in connection.execute(
            own.order_by(indexes.path, indexes.first_row)
        ):
            _append(runs[event_type, hour], IdIndexSegment(*run))
    return runs


def _append(runs: list[IdIndexSegment], run: IdIndexSegment) -> None:
    # A run ends with a container, perhaps within a block of the index: adjacent runs are merged.
    before = (
        runs.pop()
        if runs and (runs[-1].path, runs[-1].first_row + runs[-1].rows) == (run.path, run.first_row)
        else None
    )
    runs.append(
        run
        if before is None
        else IdIndexSegment(run.path, before.first_row, before.rows + run.rows)
    )


def read_missing_ranges(database: Database, event_type: str, from_hour_s: int) -> IncompleteRanges:
    """Return the byte ranges of log files whose events are incomplete in closed buckets.

    The manifests of the buckets name these ranges. Only buckets that were closed although data was
    missing (grade `timed_out` or `forced`) can have any.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Name of the event type.
        from_hour_s: First bucket to read, Unix seconds.

    Returns:
        The union over all buckets; no ranges if every bucket is complete.

    Raises:
        DamagedRow: A bucket's row does not match its digest or contains no valid manifest.
    """
    with database.reading() as connection:
        rows = [
            row
            for row in bucket_rows(connection, event_type, from_s=from_hour_s)
            if row.grade != Grade.PROVED.value
        ]
    return functools.reduce(
        IncompleteRanges.__or__,
        (_decode_manifest(event_type, row.hour_s, row.manifest).lacks for row in rows),
        IncompleteRanges(),
    )


def _lacks(manifest: Mapping[str, Any]) -> IncompleteRanges:
    if (lacks := manifest.get("lacks")) is not None:
        return IncompleteRanges(tuple(lacks["ranges"]), lacks["more"])
    return _lacks_by_text_of_0_3_0(manifest["evidence"]["waived"])


def _lacks_by_text_of_0_3_0(waived: Collection[str]) -> IncompleteRanges:
    # Manifests of version 0.3.0 and buckets sealed by it have only sentences.
    ranges = [range_id for text in waived for range_id in _RANGE_ID.findall(text)]
    return IncompleteRanges(
        tuple(dict.fromkeys(ranges)),
        any(words in text for text in waived for words in _MORE_IN_0_3_0),
    )


class _ManifestFields(NamedTuple):
    events: int
    late: Collection[str]
    files: Sequence[tuple[str, str]]
    lacks: IncompleteRanges


def _decode_manifest(event_type: str, hour_s: int, manifest: str) -> _ManifestFields:
    # A row of closed buckets has no digest, so a row without a manifest is reported here.
    try:
        m = from_json(manifest)
        files = [(file["name"], file["blake2b"]) for file in m["files"]]
        return _ManifestFields(m["events"], m["late"].keys(), files, _lacks(m))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise make_damaged_bucket_error(event_type, hour_s) from error


def replace_index_segments(
    database: Database,
    lease: Lease,
    segments: Collection[tuple[str, int, IdIndexSegment]],
    bytes_each: int,
) -> None:
    """Replace the id index segments of closed buckets, in a new transaction.

    An index segment states where the sorted event ids of a bucket are stored.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        segments: Tuples of event type, hour in Unix seconds, and segment; if empty, nothing is
            changed.
        bytes_each: Size of one id in an index file, in bytes.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    if segments:
        with database.transaction(lease) as connection:
            put_index_segments(connection, segments, bytes_each)


def put_index_segments(
    connection: Connection, segments: Collection[tuple[str, int, IdIndexSegment]], bytes_each: int
) -> None:
    """Replace the id index segments of closed buckets, in the caller's transaction.

    An index segment states where the sorted event ids of a bucket are stored.

    Args:
        connection: The caller's transaction.
        segments: Tuples of event type, hour in Unix seconds, and segment.
        bytes_each: Size of one id in an index file, in bytes.
    """
    rows = [
        {
            **dataclasses.asdict(segment),
            "type": event_type,
            "hour": hour_s,
            "bytes": segment.rows * bytes_each,
        }
        for event_type, hour_s, segment in segments
    ]
    replace_rows(connection, tables.id_indexes, ("type", "hour"), rows)


def trim_id_index(database: Database, lease: Lease, before_s: int, bytes_max: int) -> int:
    """Delete old segments of the id index, by age and by total size.

    An index segment states where the sorted event ids of a bucket are stored. All segments of an
    hour are deleted together. To enforce the size limit, the oldest hours are deleted first.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        before_s: All segments of hours before this time are deleted, Unix seconds.
        bytes_max: Maximum total size of the remaining segments, in bytes.

    Returns:
        The number of deleted segments.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    table = tables.id_indexes
    with database.transaction(lease) as connection:
        sizes = connection.execute(
            select(table.c.hour, func.sum(table.c.bytes))
            .group_by(table.c.hour)
            .order_by(table.c.hour.desc())
        ).all()
        kept, limit = 0, before_s
        for hour, size in sizes:
            kept += int(size)
            if kept > bytes_max:
                limit = max(limit, hour + 1)
                break
        return connection.execute(delete(table).where(table.c.hour < limit)).rowcount


def read_index_paths(database: Database) -> set[str]:
    """Return the paths of all id index files that the ledger refers to.

    An id index file contains the sorted event ids of closed buckets.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Paths relative to the storage root; empty if no bucket is indexed.
    """
    return set(database.fetch(select(tables.id_indexes.c.path).distinct()).scalars())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnauditedFileRow:
    """A ledger row for a file with the unaudited events of one bucket.

    The ledger is the state database of the ETL. An event is unaudited if no audit record (a
    delivery service's statement of what it wrote) covered it when the content of its bucket was
    fixed.

    Attributes:
        event_type: Name of the event type.
        hour_s: Start of the bucket's hour, Unix seconds.
        path: Path of the file, relative to the storage root.
        rows: Number of events in the file.
        audit_next: For each site, the smallest audit offset that audit records of these events may
            have.
        sealed_at_ms: Time at which the bucket's content was fixed, Unix milliseconds.
        settled_next: For each site, the audit offset below which all audit records of the type were
            compared with closed buckets.
    """

    event_type: str
    hour_s: int
    path: str
    rows: int
    audit_next: AuditOffsets
    sealed_at_ms: int
    settled_next: AuditOffsets


def read_unaudited_files(database: Database) -> list[UnauditedFileRow]:
    """Return all files of unaudited events in the ledger.

    An event is unaudited if no audit record (a delivery service's statement of what it wrote)
    covered it when the content of its bucket was fixed.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        The files, sorted by hour and event type; empty if there are none.
    """
    kept, frontiers = tables.unaudited, tables.frontiers
    query = (
        select(kept, frontiers.c.settled_next, frontiers.c.settled_further)
        .join(frontiers, frontiers.c.type == kept.c.type)
        .order_by(kept.c.hour, kept.c.type)
    )
    return [
        from_columns(
            UnauditedFileRow,
            row,
            audit_next=decode_audit_offsets(row["audit_next"], row["audit_further"]),
            settled_next=decode_audit_offsets(row["settled_next"], row["settled_further"]),
        )
        for row in database.fetch(query).mappings()
    ]


def make_unaudited_row(
    event_type: str, hour_s: int, path: str, rows: int, audit_next: AuditOffsets, sealed_at_ms: int
) -> dict[str, Any]:
    """Create a row of the table `unaudited`, which refers to a file of unaudited events.

    The file contains the events of one bucket that no audit record (a delivery service's statement
    of what it wrote) covers yet.

    Args:
        event_type: Event type of the bucket.
        hour_s: Start of the bucket's hour, Unix seconds.
        path: Path of the file, relative to the storage root.
        rows: Number of events in the file.
        audit_next: For each site, the smallest audit offset that audit records of these events may
            have.
        sealed_at_ms: Time at which the bucket's content was fixed, Unix milliseconds.

    Returns:
        The values by column name, ready to be inserted.
    """
    return {
        "type": event_type,
        "hour": hour_s,
        "path": path,
        "rows": rows,
        "audit_next": audit_next.offset_of(FIRST_SITE),
        "sealed_at_ms": sealed_at_ms,
        "audit_further": encode_further_sites(audit_next),
    }


def delete_unaudited_rows(database: Database, lease: Lease, paths: Collection[str]) -> None:
    """Delete the ledger rows of files with unaudited events.

    An event is unaudited if no audit record (a delivery service's statement of what it wrote)
    covered it when the content of its bucket was fixed. Delete the files themselves only after this
    call. A file without a row is ignored, but a row without its file would make a later check of
    the audit records fail.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        paths: Paths of the files, relative to the storage root.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    with database.transaction(lease) as connection:
        delete_rows(connection, tables.unaudited, ["path"], [{"path": path} for path in paths])
