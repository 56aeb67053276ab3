"""What the books need of the ledger, a few queries whatever the number of types; manifests are read one after another.

All questions of one answer go to one connection, which gives a consistent view while a driver goes on.

Times are origin hours, but for buckets: any bucket from the first hour asked for on may hold late events of the hours asked for.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from sqlalchemy import Connection, and_, case, func, select

from etl.ledger import tables
from etl.ledger.database import Database
from etl.ledger.listings import group_of
from etl.ledger.rows import StagedGroup
from hourmark.manifest import Manifest


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Which books: of one type (None: all), of origin hours that begin in [from_s, to_s], Unix seconds."""

    event_type: str | None
    from_s: int
    to_s: int


@dataclasses.dataclass(frozen=True, slots=True)
class FrontierFacts:
    """Where a type's frontier hour begins, up to where promises are settled, and what its last proof did not find kept."""

    event_type: str
    hour_s: int
    settled_next: int
    alarm: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ListedRows:
    """Rows of one type and origin hour that are listed for one bucket (None: for none yet)."""

    event_type: str
    listed_s: int | None
    origin_s: int
    rows: int


@dataclasses.dataclass(frozen=True, slots=True)
class PromisedSum:
    """Promises of one type and origin hour in audit records; `settled`: of those below what the type's last bucket settled."""

    event_type: str
    origin_s: int
    settled: int
    promised: int


@dataclasses.dataclass(frozen=True, slots=True)
class FileDifference:
    """A staged file of which the ledger's groups have other rows than the file."""

    path: str
    kind: str
    rows: int
    in_groups: int


def listed_rows(connection: Connection, window: Window) -> list[ListedRows]:
    """Added up over staged files, and over listings of all buckets."""
    table = tables.groups
    query = (
        select(table.c.type, table.c.listed_hour, table.c.hour, func.sum(table.c.rows))
        .where(table.c.hour >= window.from_s, *([table.c.type == window.event_type] if window.event_type else []))
        .group_by(table.c.type, table.c.listed_hour, table.c.hour)
    )
    return [ListedRows(row[0], row[1], row[2], int(row[3])) for row in connection.execute(query)]


def promised_sums(connection: Connection, window: Window) -> list[PromisedSum]:
    """Added up over the audit records that the ledger still knows."""
    table, frontiers = tables.audit_groups, tables.frontiers
    settled = and_(table.c.hour < frontiers.c.hour, table.c.last_offset < frontiers.c.settled_next)
    query = (
        select(table.c.type, table.c.hour, func.sum(case((settled, table.c.promised), else_=0)), func.sum(table.c.promised))
        .join(frontiers, frontiers.c.type == table.c.type)
        .where(
            table.c.hour >= window.from_s,
            table.c.hour <= window.to_s,
            *([table.c.type == window.event_type] if window.event_type else []),
        )
        .group_by(table.c.type, table.c.hour)
    )
    return [PromisedSum(row[0], row[1], int(row[2]), int(row[3])) for row in connection.execute(query)]


def manifests(connection: Connection, window: Window) -> Iterator[tuple[str, int, Manifest]]:
    """Type, hour and manifest of each closed bucket from `from_s` on, by type and hour."""
    table = tables.buckets
    query = (
        select(table.c.type, table.c.hour, table.c.manifest)
        .where(table.c.hour >= window.from_s, *([table.c.type == window.event_type] if window.event_type else []))
        .order_by(table.c.type, table.c.hour)
    )
    for event_type, hour_s, text in connection.execute(query):
        yield event_type, hour_s, Manifest.decode(text.encode())


def frontier_facts(connection: Connection) -> list[FrontierFacts]:
    """Of every type, by name."""
    table = tables.frontiers
    rows = connection.execute(select(table.c.type, table.c.hour, table.c.settled_next, table.c.alarm).order_by(table.c.type))
    return [FrontierFacts(row[0], row[1], row[2], tuple(json.loads(row[3])) if row[3] else ()) for row in rows]


def file_differences(connection: Connection) -> list[FileDifference]:
    """Staged files whose groups do not add up to them."""
    files, found = tables.staged_files, []
    for kind, groups in (("events", tables.groups), ("audit", tables.audit_groups)):
        summed = func.coalesce(func.sum(groups.c.rows), 0)
        query = (
            select(files.c.path, files.c.rows, summed)
            .outerjoin(groups, groups.c.file_id == files.c.id)
            .where(files.c.kind == kind)
            .group_by(files.c.id, files.c.path, files.c.rows)
            .having(summed != files.c.rows)
        )
        found += [FileDifference(row[0], kind, row[1], int(row[2])) for row in connection.execute(query)]
    return found


def groups_of(database: Database, event_type: str, origin_s: int) -> list[StagedGroup]:
    """The staged groups of one type and origin hour, wherever they are listed."""
    table, files = tables.groups, tables.staged_files
    query = (
        select(files.c.path, table)
        .join(files, files.c.id == table.c.file_id)
        .where(table.c.type == event_type, table.c.hour == origin_s)
        .order_by(table.c.id)
    )
    with database.reading() as connection:
        return [group_of(row, event_type) for row in connection.execute(query).mappings()]
