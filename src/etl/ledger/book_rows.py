"""What the books and `hourmark ledger check` ask of staged groups."""

from __future__ import annotations

import dataclasses

from sqlalchemy import Connection, func, select

from etl.ledger import tables
from etl.ledger.database import Database
from etl.ledger.listings import group_of
from etl.ledger.rows import AUDIT, EVENTS, StagedGroup


@dataclasses.dataclass(frozen=True, slots=True)
class FileDifference:
    """A staged file of which the ledger's groups have other rows than the file."""

    path: str
    kind: str
    rows: int
    in_groups: int


def file_differences(connection: Connection) -> list[FileDifference]:
    """Staged files whose groups do not add up to them."""
    files, found = tables.staged_files, []
    for kind, groups in ((EVENTS, tables.groups), (AUDIT, tables.audit_groups)):
        summed = func.coalesce(func.sum(groups.c.rows), 0)
        query = (
            select(files.c.path, files.c.rows, summed)
            .outerjoin(groups, groups.c.file_id == files.c.id)
            .where(files.c.kind == kind)
            .group_by(files.c.id, files.c.path, files.c.rows)
            .having(summed != files.c.rows)
        )
        found += [FileDifference(path, kind, rows, int(added)) for path, rows, added in connection.execute(query)]
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
    return [group_of(row, event_type) for row in database.ask(query).mappings()]
