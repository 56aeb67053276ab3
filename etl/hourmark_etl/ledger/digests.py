"""A digest in each row that a proof rests on: positions, frontiers, staged files, groups of events
and of promises, conflicts and schemas.

It covers every column but itself, row numbers, and those that their table marks `UNDIGESTED`; one
marked `LATER` where it is not null, so that rows of before keep their digest; of a group also its
file's path, which so stands for the number of the file. It is written with the row, and compared
whenever the row is read to stage, freeze, prove or write. It tells a byte that changed (on disk, in
memory, by hand), not a row that was taken away: that is told by what depends on it (promises that
nothing keeps, a seal that other rows add up to).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, select, update

from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database

_BYTES: Final = 8  # against accidents: one in 2^64 passes


def with_digest(table: Table, row: Mapping[Any, Any], path: str = "") -> dict[str, Any]:
    """The row as it is to be written. `path`: of a group's file."""
    return {**row, tables.DIGEST: _digest(table, row, path)}


def update_rows(
    connection: Connection,
    table: Table,
    changes: Iterable[tuple[Mapping[Any, Any], Mapping[str, Any]]],
    path: str = "",
) -> None:
    """Change columns of rows that were read, given as (row, its new columns).

    `path`: of a group's file, from now on.

    One call of the database, however many rows.
    """
    names, own = [c.name for c in table.columns], [c.name for c in table.primary_key]
    told = []
    for row, changed in changes:
        new = with_digest(table, {**row, **changed}, path)
        told.append(
            {f"new_{name}": new[name] for name in names}
            | {f"own_{name}": row[name] for name in own}
        )
    if told:
        same = (table.c[name] == bindparam(f"own_{name}") for name in own)
        connection.execute(
            update(table).where(*same).values({name: bindparam(f"new_{name}") for name in names}),
            told,
        )


def check_digest(
    table: Table, row: Mapping[Any, Any], path: str = "", event_type: str | None = None
) -> None:
    """DamagedRow if the row, which has all columns, is not as it was written.

    `event_type`: whose question it answers.
    """
    if row[tables.DIGEST] != _digest(table, row, path):
        key = ", ".join(f"{c.name} {row[c.name]!r}" for c in table.primary_key)
        raise DamagedRow(table.name, f"{key}{f', of {path}' if path else ''}", event_type)


def find_damaged_rows(database: Database, *, is_start: bool = False) -> list[DamagedRow]:
    """All of them: every row that has a digest is read.

    `is_start`: not of tables that grow with history.
    """
    found, paths = [], {}
    with database.reading() as connection:
        told = (
            t for t in tables.metadata.sorted_tables if tables.DIGEST in t.c
        )  # a file before its groups
        for table in (t for t in told if not (is_start and t.info.get(tables.CHECKED_WHEN_READ))):
            for row in connection.execute(
                select(table).execution_options(yield_per=1000)
            ).mappings():
                if table is tables.staged_files:
                    paths[row["id"]] = row["path"]
                try:
                    check_digest(
                        table, row, paths.get(row["file_id"], "") if "file_id" in row else ""
                    )
                except DamagedRow as damaged:
                    found.append(damaged)
    return found


def _digest(table: Table, row: Mapping[Any, Any], path: str) -> bytes:
    own, later = _covered(table)
    values = (
        path,
        *(row[name] for name in own),
        *((name, row[name]) for name in later if row.get(name) is not None),
    )
    return hashlib.blake2b(
        repr(values).encode(errors="backslashreplace"), digest_size=_BYTES, key=table.name.encode()
    ).digest()


@functools.cache
def _covered(table: Table) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Columns that are there since the first release, and later ones."""
    columns = [
        c for c in table.columns if c.name != tables.DIGEST and not c.info.get(tables.UNDIGESTED)
    ]
    own, later = (
        [c.name for c in columns if bool(c.info.get(tables.LATER)) is is_later]
        for is_later in (False, True)
    )
    return tuple(own), tuple(later)
