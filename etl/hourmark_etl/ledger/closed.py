"""What later hours need of closed ones.

Which closed buckets may hold ids of an origin hour, and where the index of their ids stands: a cache, so rows may go. Schema
ids with what they stood for: an id that stands for another schema later stops the ETL. Which files of unaudited rows there are:
rows that a later promise may need (`hourmark_etl.closing.proof.unaudited`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import bindparam, delete, func, select

from hourmark.hours import Hour
from hourmark.manifest import Grade
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease, put
from hourmark_etl.model import from_row


@dataclasses.dataclass(frozen=True, slots=True)
class IdRun:
    """Rows [first_row, first_row + rows) of an index file: ids of one bucket, ascending."""

    path: str
    first_row: int
    rows: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClosedBucket:
    """A closed bucket. `events`: records in all `files`: their paths below the root, and their digests."""

    event_type: str
    hour_s: int
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
    """By type: closed buckets that hold events of these origin hours, as their own or as late ones. Empty ones are left out."""
    found: dict[str, tuple[ClosedBucket, ...]] = {}
    with database.reading() as connection:
        for event_type, origins in origin_hours_s.items():
            if not origins:
                continue
            rows = connection.execute(
                select(tables.buckets.c.hour, tables.buckets.c.manifest).where(
                    tables.buckets.c.type == event_type, tables.buckets.c.hour >= min(origins)
                )
            ).all()
            told = [(hour, json.loads(manifest)) for hour, manifest in rows]
            labels = {str(Hour(origin, bucket_seconds)) for origin in origins}
            chosen = {hour: m for hour, m in told if m["events"] and (hour in origins or labels & m["late"].keys())}
            index: dict[int, list[IdRun]] = {hour: [] for hour in chosen}
            if chosen:
                query = select(tables.id_indexes).where(
                    tables.id_indexes.c.type == event_type, tables.id_indexes.c.hour.in_(sorted(chosen))
                )
                for row in connection.execute(query).mappings():
                    index[row["hour"]].append(IdRun(row["path"], row["first_row"], row["rows"]))
            found[event_type] = tuple(
                _bucket(event_type, Hour(hour, bucket_seconds), manifest, index[hour])
                for hour, manifest in sorted(chosen.items())
            )
    return found


def waives(database: Database, event_type: str, from_hour_s: int) -> list[str]:
    """What closed buckets of this hour and later ones waive, by their manifests."""
    kept = tables.buckets.c
    query = select(kept.manifest).where(kept.type == event_type, kept.hour >= from_hour_s, kept.grade != Grade.PROVED.value)
    return [text for manifest in database.ask(query).scalars() for text in json.loads(manifest)["evidence"]["waived"]]


def _bucket(event_type: str, hour: Hour, manifest: Mapping[str, Any], index: Iterable[IdRun]) -> ClosedBucket:
    files = tuple((f"{hour.bucket_path(event_type)}/{file['name']}", file["blake2b"]) for file in manifest["files"])
    return ClosedBucket(event_type=event_type, hour_s=hour.start_s, events=manifest["events"], index=tuple(index), files=files)


def remember(database: Database, lease: Lease, runs: Collection[tuple[str, int, IdRun]], bytes_each: int) -> None:
    """Runs of closed buckets (type, hour); `bytes_each`: of an id. What was known of those buckets before is forgotten."""
    if runs:
        rows = [
            {**dataclasses.asdict(run), "type": event_type, "hour": hour_s, "bytes": run.rows * bytes_each}
            for event_type, hour_s, run in runs
        ]
        with database.transaction(lease) as connection:
            put(connection, tables.id_indexes, ("type", "hour"), rows)


def forget_old(database: Database, lease: Lease, before_s: int, bytes_max: int) -> int:
    """Forget runs of buckets before this hour, and the oldest hours beyond so many bytes in all; how many runs were forgotten."""
    table = tables.id_indexes
    with database.transaction(lease) as connection:
        sizes = connection.execute(
            select(table.c.hour, func.sum(table.c.bytes)).group_by(table.c.hour).order_by(table.c.hour.desc())
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
    """Unaudited rows of one bucket. What settles them lies at or past `audit_next`; what the type has settled by now, below
    `settled_next` (central audit offsets)."""

    event_type: str
    hour_s: int
    path: str
    rows: int
    audit_next: int
    sealed_at_ms: int
    settled_next: int


def unaudited_files(database: Database) -> list[KeptUnaudited]:
    """All of them, oldest bucket first."""
    kept, frontiers = tables.unaudited, tables.frontiers
    query = (
        select(*kept.c, frontiers.c.settled_next)
        .join(frontiers, frontiers.c.type == kept.c.type)
        .order_by(kept.c.hour, kept.c.type)
    )
    return [from_row(KeptUnaudited, row) for row in database.ask(query)]


def forget_unaudited(database: Database, lease: Lease, paths: Collection[str]) -> None:
    """Before the files are deleted: a file that nobody names harms nothing, a missing one would leave a promise unmet."""
    with database.transaction(lease) as connection:
        connection.execute(delete(tables.unaudited).where(tables.unaudited.c.path == bindparam("of")), [{"of": p} for p in paths])
