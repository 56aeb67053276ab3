"""What the closer commits: freeze, unfreeze, seal, close. Each is one transaction under the closer's lease.

    open ──freeze──► frozen ──seal──► sealed ──close──► open (the next hour)
      ▲                │
      └────unfreeze────┘

A compare-and-set on (hour, state) guards each arrow, so a step that was already taken, or taken by another, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, insert, select, update

from etl.errors import StaleDriver
from etl.ledger import tables
from etl.ledger.database import Database, Lease
from etl.ledger.rows import AuditGroup, Frontier, Position, Seal, StagedGroup, State, to_unsigned
from hourmark.hours import Hour
from hourmark.manifest import Manifest


def frontiers(database: Database, bucket_seconds: int) -> list[Frontier]:
    """All types' frontier hours, by name."""
    with database.reading() as connection:
        rows = connection.execute(select(tables.frontiers).order_by(tables.frontiers.c.type)).mappings().all()
    return [
        Frontier(
            row["type"],
            Hour(row["first_hour"], bucket_seconds),
            Hour(row["hour"], bucket_seconds),
            State(row["state"]),
            frozenset(json.loads(row["sources"])),
            row["settled_next"],
            Seal.from_json(row["seal"]) if row["seal"] else None,
            tuple(json.loads(row["alarm"])) if row["alarm"] else (),
            row["shard"],
        )
        for row in rows
    ]


def freeze(
    database: Database, lease: Lease, chosen: Collection[Frontier], topics: Mapping[str, str]
) -> dict[str, tuple[Position, ...]]:
    """List every unlisted group of hour ≤ the frontier's for it; later ones of those hours are carried by later buckets.

    Returns, by type, how far its central topic (`topics`: type → name) was staged in that very transaction: whatever of the
    listed hours lies below is in this bucket or an earlier one.
    """
    offsets: dict[str, tuple[Position, ...]] = {}
    with database.transaction(lease) as connection:
        for f in chosen:
            _move(connection, f, State.OPEN, State.FROZEN)
            connection.execute(
                update(tables.groups)
                .where(
                    tables.groups.c.type == f.event_type,
                    tables.groups.c.listed_hour.is_(None),
                    tables.groups.c.hour <= f.hour.start_s,
                )
                .values(listed_hour=f.hour.start_s)
            )
            query = select(tables.positions).where(tables.positions.c.topic == topics[f.event_type])
            offsets[f.event_type] = tuple(Position(**row) for row in connection.execute(query).mappings())
    return offsets


def unfreeze(database: Database, lease: Lease, frontier: Frontier, alarm: Sequence[str]) -> None:
    """Take the listing back; `alarm` says what the proof missed, empty where a crash alone is the cause."""
    with database.transaction(lease) as connection:
        _move(connection, frontier, State.FROZEN, State.OPEN, alarm=json.dumps(list(alarm)) if alarm else None)
        connection.execute(
            update(tables.groups)
            .where(tables.groups.c.type == frontier.event_type, tables.groups.c.listed_hour == frontier.hour.start_s)
            .values(listed_hour=None)
        )


def seal(database: Database, lease: Lease, seals: Mapping[str, Seal], frozen: Collection[Frontier]) -> None:
    """Fix what the buckets hold and how they were proved."""
    with database.transaction(lease) as connection:
        for f in frozen:
            _move(connection, f, State.FROZEN, State.SEALED, seal=seals[f.event_type].to_json(), alarm=None)


def close(database: Database, lease: Lease, frontier: Frontier, manifest: Manifest) -> None:
    """Remember the published bucket and go on to the next hour. What the marker says stands, whoever published it."""
    assert frontier.seal is not None
    assert (manifest.type, manifest.hour) == (frontier.event_type, str(frontier.hour))
    with database.transaction(lease) as connection:
        _move(
            connection,
            frontier,
            State.SEALED,
            State.OPEN,
            hour=frontier.hour.end_s,
            seal=None,
            settled_next=frontier.seal.audit_next,
        )
        connection.execute(
            insert(tables.buckets).values(
                type=frontier.event_type,
                hour=frontier.hour.start_s,
                grade=manifest.grade.value,
                manifest=manifest.encode().decode(),
                closed_at_ms=manifest.closed_at_ms,
            )
        )


def closed_types(database: Database) -> set[str]:
    """Types of which this ledger has closed a bucket."""
    with database.reading() as connection:
        return set(connection.execute(select(tables.buckets.c.type).distinct()).scalars())


def listed_groups(database: Database, event_type: str, listed: Hour) -> list[StagedGroup]:
    """What a freeze has listed for the hour, its late events' groups included."""
    return _groups(database, event_type, tables.groups.c.listed_hour == listed.start_s)


def listed_before(database: Database, event_type: str, listed: Hour, origin_hours_s: Collection[int]) -> list[StagedGroup]:
    """Groups of these origin hours that earlier buckets hold."""
    if not origin_hours_s:
        return []
    return _groups(
        database, event_type, tables.groups.c.listed_hour < listed.start_s, tables.groups.c.hour.in_(sorted(origin_hours_s))
    )


def audit_groups(database: Database, event_type: str, hours_s: Collection[int], below: int) -> list[AuditGroup]:
    """Promises for the type and these hours in audit records that begin below this central offset."""
    if not hours_s:
        return []
    return _audit_groups(database, event_type, tables.audit_groups.c.hour.in_(sorted(hours_s)), below, at_least=0)


def new_audit_groups(database: Database, event_type: str, up_to: Hour, at_least: int, below: int) -> list[AuditGroup]:
    """Promises of hours before `up_to` in audit records of central offsets [at_least, below): late promises."""
    return _audit_groups(database, event_type, tables.audit_groups.c.hour < up_to.start_s, below, at_least)


def _audit_groups(database: Database, event_type: str, condition: object, below: int, at_least: int) -> list[AuditGroup]:
    table = tables.audit_groups
    query = (
        select(
            tables.staged_files.c.path,
            table.c.type,
            table.c.hour,
            table.c.rows,
            table.c.first_offset,
            table.c.last_offset,
            table.c.promised,
            table.c.tail_sum,
        )
        .join(tables.staged_files, tables.staged_files.c.id == table.c.file_id)
        .where(table.c.type == event_type, condition, table.c.first_offset < below, table.c.last_offset >= at_least)  # type: ignore[arg-type]
    )
    with database.reading() as connection:
        return [AuditGroup(*row[:7], to_unsigned(row[7])) for row in connection.execute(query)]


def _groups(database: Database, event_type: str, *conditions: object) -> list[StagedGroup]:
    table = tables.groups
    query = (
        select(
            tables.staged_files.c.path,
            table.c.type,
            table.c.hour,
            table.c.rows,
            table.c.bytes,
            table.c.tail_sum,
            table.c.schema_ids,
            table.c.first_row,
            table.c.first_id,
            table.c.last_id,
        )
        .join(tables.staged_files, tables.staged_files.c.id == table.c.file_id)
        .where(table.c.type == event_type, *conditions)  # type: ignore[arg-type]  # column expressions
        .order_by(table.c.id)
    )
    with database.reading() as connection:
        return [
            StagedGroup(*row[:5], to_unsigned(row[5]), tuple(json.loads(row[6])), row[7], row[8], row[9])
            for row in connection.execute(query)
        ]


def _move(connection: Connection, frontier: Frontier, before: State, after: State, **values: object) -> None:
    table = tables.frontiers
    moved = connection.execute(
        update(table)
        .where(
            table.c.type == frontier.event_type,
            table.c.hour == frontier.hour.start_s,
            table.c.state == before.value,
        )
        .values(state=after.value, **values)
    )
    if moved.rowcount != 1:
        raise StaleDriver(
            f"type {frontier.event_type}, hour {frontier.hour}: the ledger is not {before.value} there, so another closer has "
            "moved it; this one stops and changes nothing"
        )
