"""A digest in each row that a proof depends on, compared whenever the row is used.

Rows with digests: positions, frontiers, staged files, groups of events and of promises, conflicts
and schemas, among others. A digest covers every column except itself, row ids and columns marked
`UNDIGESTED`. A column marked `LATER` counts only if it is not null, so older rows keep their
digest. The digest of a group also covers its file's path, in place of the file's row id. Digests
detect bytes that changed on disk, in memory or by hand. A deleted row is detected by what depends
on it: promises without events, or a seal with another sum.
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
    """Return a copy of a row with its digest (a checksum of its values), ready to be written.

    Args:
        table: Table of the row.
        row: Values by column name.
        path: For a row of `staged_groups` or `audit_groups`, the path of the staged file that the
            group belongs to; empty for rows of other tables.

    Returns:
        The values by column name, including the digest column.
    """
    return {**row, tables.DIGEST: _digest(table, row, path)}


def update_rows(
    connection: Connection,
    table: Table,
    changes: Iterable[tuple[Mapping[Any, Any], Mapping[str, Any]]],
    path: str = "",
) -> None:
    """Update columns of rows, and recompute the rows' digests (checksums), in one database call.

    Args:
        connection: The caller's transaction.
        table: Table of the rows.
        changes: Pairs of a complete row, as read, and its new column values.
        path: For rows of `staged_groups` or `audit_groups`, the path of their staged file after the
            update; empty for rows of other tables.
    """
    names, own = [c.name for c in table.columns], [c.name for c in table.primary_key]
    parameters = []
    for row, changed in changes:
        new = with_digest(table, {**row, **changed}, path)
        parameters.append(
            {f"new_{name}": new[name] for name in names}
            | {f"own_{name}": row[name] for name in own}
        )
    if parameters:
        same = (table.c[name] == bindparam(f"own_{name}") for name in own)
        connection.execute(
            update(table).where(*same).values({name: bindparam(f"new_{name}") for name in names}),
            parameters,
        )


def check_digest(
    table: Table, row: Mapping[Any, Any], path: str = "", event_type: str | None = None
) -> None:
    """Check that the digest (checksum) stored in a row matches the row's values.

    Args:
        table: Table of the row.
        row: All columns of the row.
        path: For a row of `staged_groups` or `audit_groups`, the path of the staged file that the
            group belongs to; empty for rows of other tables.
        event_type: Event type to store in the error; None if the row concerns several types.

    Raises:
        DamagedRow: The digest does not match: the row was changed on disk, in memory or by hand.
    """
    if row[tables.DIGEST] != _digest(table, row, path):
        key = ", ".join(f"{c.name} {row[c.name]!r}" for c in table.primary_key)
        raise DamagedRow(table.name, f"{key}{f', of {path}' if path else ''}", event_type)


def find_damaged_rows(database: Database, *, is_start: bool = False) -> list[DamagedRow]:
    """Find the damaged rows of the ledger, by comparing each row with its digest (a checksum).

    Args:
        database: The ledger (the ETL's state database).
        is_start: Whether to skip tables that grow over time, so that a driver starts quickly. Their
            rows are checked whenever they are read.

    Returns:
        One error per damaged row; the errors are not raised. Empty if all rows are intact.
    """
    found, paths = [], {}
    with database.reading() as connection:
        digested = (
            t for t in tables.metadata.sorted_tables if tables.DIGEST in t.c
        )  # a file before its groups
        for table in (
            t for t in digested if not (is_start and t.info.get(tables.CHECKED_WHEN_READ))
        ):
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
    columns = [
        c for c in table.columns if c.name != tables.DIGEST and not c.info.get(tables.UNDIGESTED)
    ]
    own, later = (
        [c.name for c in columns if bool(c.info.get(tables.LATER)) is is_later]
        for is_later in (False, True)
    )
    return tuple(own), tuple(later)
