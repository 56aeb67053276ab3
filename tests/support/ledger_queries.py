"""The ledger in the plainest way, for tests: what it lists, one type at a time; and rows changed as
a program would.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from sqlalchemy import ColumnElement, Table, select, update

from hourmark.records.hours import Hour
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import with_digest
from hourmark_etl.model import StagedGroup, from_row, to_unsigned


def rewrite(
    database: Database, table: Table, where: ColumnElement[bool], **changed: object
) -> None:
    """Change columns of these rows as a program would, with a digest that is right."""
    with database.transaction() as connection:
        for row in connection.execute(select(table).where(where)).mappings().all():
            key = [column == row[column.name] for column in table.primary_key]
            connection.execute(
                update(table).where(*key).values(**with_digest(table, {**row, **changed}))
            )


def read_assigned_groups(database: Database, event_type: str, listed: Hour) -> list[StagedGroup]:
    """What a freeze has listed for the hour, its late events' groups included."""
    return _groups(database, event_type, tables.groups.c.listed_hour == listed.start_s)


def listed_before(
    database: Database, event_type: str, listed: Hour, origin_hours_s: Collection[int]
) -> list[StagedGroup]:
    """Groups of these origin hours that earlier buckets hold."""
    if not origin_hours_s:
        return []
    return _groups(
        database,
        event_type,
        tables.groups.c.listed_hour < listed.start_s,
        tables.groups.c.hour.in_(sorted(origin_hours_s)),
    )


def _groups(database: Database, event_type: str, *conditions: object) -> list[StagedGroup]:
    table = tables.groups
    query = (
        select(
            tables.staged_files.c.path,
            table.c.type,
            table.c.hour,
            table.c.rows,
            table.c.bytes,
            table.c.low64_sum,
            table.c.schema_ids,
            table.c.first_row,
            table.c.first_id,
            table.c.last_id,
            table.c.value_sum,
        )
        .join(tables.staged_files, tables.staged_files.c.id == table.c.file_id)
        # column expressions
        .where(table.c.type == event_type, *conditions)  # type: ignore[arg-type]
        .order_by(table.c.id)
    )
    with database.reading() as connection:
        return [
            from_row(
                StagedGroup,
                (
                    *row[:5],
                    to_unsigned(row[5]),
                    tuple(json.loads(row[6])),
                    *row[7:10],
                    _unsigned(row[10]),
                ),
            )
            for row in connection.execute(query)
        ]


def _unsigned(value: int | None) -> int | None:
    return None if value is None else to_unsigned(value)
