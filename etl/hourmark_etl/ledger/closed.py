"""What later hours need of closed ones.

Which closed buckets may hold ids of an origin hour, and where the index of their ids stands: a
cache, so rows may go. Schema ids with what they stood for: an id that stands for another schema
later stops the ETL. Which files of unaudited rows there are: rows that a later promise may need
(`hourmark_etl.closing.proof.unaudited`).
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
    asked_pairs,
    bucket_rows,
    buckets_with_late,
    damaged_bucket,
    manifests_of,
)
from hourmark_etl.ledger.database import Database, Lease, put, remove
from hourmark_etl.ledger.frontier_rows import further_json, offsets_of
from hourmark_etl.model import FIRST_SITE, AuditOffsets, IncompleteRanges, from_columns

# In sentences of version 0.3.0: range ids, and the words of those that stand for ranges without a
# name.
_RANGE_ID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")
_MORE_IN_0_3_0: Final = ("more ranges", "accepted: ", "are lost with the staged file")


@dataclasses.dataclass(frozen=True, slots=True)
class IdRun:
    """Rows [first_row, first_row + rows) of an index file: ids of one bucket, ascending."""

    path: str
    first_row: int
    rows: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClosedBucket:
    """A closed bucket. `events`: records in all `files`: their paths below the root, and their
    digests. `holds`: of the hours that were asked for, those of which it has events.
    """

    event_type: str
    hour_s: int
    holds: tuple[Hour, ...]
    events: int
    index: tuple[IdRun, ...]
    files: tuple[tuple[str, str], ...]

    @property
    def is_indexed(self) -> bool:
        """Whether the index speaks of every event."""
        return sum(run.rows for run in self.index) == self.events


def closed_buckets(
    database: Database, origin_hours_s: Mapping[str, Collection[int]], bucket_seconds: int
) -> dict[str, tuple[ClosedBucket, ...]]:
    """By type: closed buckets that hold events of these origin hours, as their own or as late ones.

    Empty ones are left out.
    """
    origins = {event_type: set(of) for event_type, of in origin_hours_s.items() if of}
    with database.reading() as connection:
        holds = buckets_with_late(connection, origins)
        for event_type, of in origins.items():
            for origin in of:
                holds[event_type, origin].add(origin)
        chosen = {
            key: m
            for key, text in manifests_of(connection, holds).items()
            if (m := _told(*key, text)).events
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
                holds=tuple(hour for hour in held if str(hour) in labels),
                events=m.events,
                index=tuple(runs[event_type, hour_s]),
                files=tuple((f"{folder}/{name}", digest) for name, digest in m.files),
            )
        )
    return {event_type: tuple(of) for event_type, of in found.items()}


def _runs(
    connection: Connection, buckets: Collection[tuple[str, int]]
) -> dict[tuple[str, int], list[IdRun]]:
    """By bucket, the runs of the index."""
    indexes = tables.id_indexes.c
    runs = defaultdict[tuple[str, int], list[IdRun]](list)
    query = select(indexes.type, indexes.hour, indexes.path, indexes.first_row, indexes.rows)
    for one in asked_pairs(buckets):
        own = query.join(one, and_(indexes.type == one.c.type, indexes.hour == one.c.at))
        for event_type, hour, *run in connection.execute(
            own.order_by(indexes.path, indexes.first_row)
        ):
            _append(runs[event_type, hour], IdRun(*run))
    return runs


def _append(runs: list[IdRun], run: IdRun) -> None:
    """As one with the run before it where it goes on: that ended with a container, and may have
    within a block of the index.
    """
    before = (
        runs.pop()
        if runs and (runs[-1].path, runs[-1].first_row + runs[-1].rows) == (run.path, run.first_row)
        else None
    )
    runs.append(
        run if before is None else IdRun(run.path, before.first_row, before.rows + run.rows)
    )


def lacked_since(database: Database, event_type: str, from_hour_s: int) -> IncompleteRanges:
    """Return what closed buckets of this hour (Unix seconds) and later ones lack, by their
    manifests.
    """
    with database.reading() as connection:
        rows = [
            row
            for row in bucket_rows(connection, event_type, from_s=from_hour_s)
            if row.grade != Grade.PROVED.value
        ]
    return functools.reduce(
        IncompleteRanges.__or__,
        (_told(event_type, row.hour_s, row.manifest).lacks for row in rows),
        IncompleteRanges(),
    )


def _lacks(manifest: Mapping[str, Any]) -> IncompleteRanges:
    if (told := manifest.get("lacks")) is not None:
        return IncompleteRanges(tuple(told["ranges"]), told["more"])
    return _lacks_by_text_of_0_3_0(manifest["evidence"]["waived"])


def _lacks_by_text_of_0_3_0(waived: Collection[str]) -> IncompleteRanges:
    """Read it from the sentences of a manifest of version 0.3.0 or before, or of a bucket that such
    a version sealed.
    """
    ranges = [range_id for text in waived for range_id in _RANGE_ID.findall(text)]
    return IncompleteRanges(
        tuple(dict.fromkeys(ranges)),
        any(words in text for text in waived for words in _MORE_IN_0_3_0),
    )


class _Told(NamedTuple):
    """Of a bucket's manifest: `late`: labels of hours; `files`: names and digests."""

    events: int
    late: Collection[str]
    files: Sequence[tuple[str, str]]
    lacks: IncompleteRanges


def _told(event_type: str, hour_s: int, manifest: str) -> _Told:
    """Of a row of closed buckets. DamagedRow where it holds no manifest: it has no digest."""
    try:
        m = from_json(manifest)
        files = [(file["name"], file["blake2b"]) for file in m["files"]]
        return _Told(m["events"], m["late"].keys(), files, _lacks(m))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_bucket(event_type, hour_s) from error


def remember(
    database: Database, lease: Lease, runs: Collection[tuple[str, int, IdRun]], bytes_each: int
) -> None:
    """Runs of closed buckets (type, hour); `bytes_each`: of an id.

    What was known of those buckets before is forgotten.
    """
    if runs:
        with database.transaction(lease) as connection:
            put_runs(connection, runs, bytes_each)


def put_runs(
    connection: Connection, runs: Collection[tuple[str, int, IdRun]], bytes_each: int
) -> None:
    """See `remember`."""
    rows = [
        {
            **dataclasses.asdict(run),
            "type": event_type,
            "hour": hour_s,
            "bytes": run.rows * bytes_each,
        }
        for event_type, hour_s, run in runs
    ]
    put(connection, tables.id_indexes, ("type", "hour"), rows)


def forget_old(database: Database, lease: Lease, before_s: int, bytes_max: int) -> int:
    """Forget runs of buckets before this hour, and the oldest hours beyond so many bytes in all;
    how many runs were forgotten.
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


def paths(database: Database) -> set[str]:
    """Index files that the ledger names."""
    return set(database.ask(select(tables.id_indexes.c.path).distinct()).scalars())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeptUnaudited:
    """Unaudited rows of one bucket. What settles them lies at or past `audit_next`; what the type
    has settled by now, below `settled_next`.
    """

    event_type: str
    hour_s: int
    path: str
    rows: int
    audit_next: AuditOffsets
    sealed_at_ms: int
    settled_next: AuditOffsets


def unaudited_files(database: Database) -> list[KeptUnaudited]:
    """All of them, oldest bucket first."""
    kept, frontiers = tables.unaudited, tables.frontiers
    query = (
        select(kept, frontiers.c.settled_next, frontiers.c.settled_further)
        .join(frontiers, frontiers.c.type == kept.c.type)
        .order_by(kept.c.hour, kept.c.type)
    )
    return [
        from_columns(
            KeptUnaudited,
            row,
            audit_next=offsets_of(row["audit_next"], row["audit_further"]),
            settled_next=offsets_of(row["settled_next"], row["settled_further"]),
        )
        for row in database.ask(query).mappings()
    ]


def unaudited_row(
    event_type: str, hour_s: int, path: str, rows: int, audit_next: AuditOffsets, sealed_at_ms: int
) -> dict[str, Any]:
    """Of the table `unaudited`."""
    return {
        "type": event_type,
        "hour": hour_s,
        "path": path,
        "rows": rows,
        "audit_next": audit_next.offset_of(FIRST_SITE),
        "sealed_at_ms": sealed_at_ms,
        "audit_further": further_json(audit_next),
    }


def forget_unaudited(database: Database, lease: Lease, paths: Collection[str]) -> None:
    """Before the files are deleted: a file that nobody names harms nothing, a missing one would
    leave a promise unmet.
    """
    with database.transaction(lease) as connection:
        remove(connection, tables.unaudited, ["path"], [{"path": path} for path in paths])
