"""Returns a ledger to an older version: a downgrade of its tables, or a restored copy.

Both are one transaction, after a copy of the current ledger was made, and raise the epochs of all
leases, so a driver that still runs can change nothing. Commit numbers and epochs never decrease, so
no name that contains one is used twice.

    downgrade   closed hours stay closed; data that only later versions know is dropped
    restore     only if nothing was closed, sealed or declared since; topics are staged again from
                the copy's positions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy import Connection, Engine, insert, select, update

from hourmark.errors import Finding
from hourmark_etl.ledger import migrations, tables
from hourmark_etl.ledger.database import translate_database_errors
from hourmark_etl.ledger.engines import lock_for_migration, open_engine
from hourmark_etl.ledger.maintenance.backups import (
    back_up,
    open_with_copy,
    read_copy_revision,
    restore_rows,
)
from hourmark_etl.model import HourState

_COMMIT: Final = tables.meta.c.key == "commit"


def downgrade_ledger(
    url: str, revision: int, check: Callable[[Connection], None] = lambda _: None
) -> str:
    """Copy the ledger, then migrate its tables down to an older schema version.

    Args:
        url: URL of the ledger.
        revision: Target schema version.
        check: Function that is called in the transaction before any change; it raises an exception
            to abort.

    Returns:
        The file path (SQLite) or schema name (PostgreSQL) of the copy.

    Raises:
        Unavailable: The database does not respond, or the copy cannot be made; nothing was changed.
    """
    changing, _ = open_engine(url)
    try:
        with translate_database_errors(url), changing.begin() as connection:
            lock_for_migration(connection)
            check(connection)
            copy = back_up(connection)
            migrations.downgrade(connection, revision)
            _fence(connection, _commit(connection))
        return copy
    finally:
        changing.dispose()


def restore_copy(
    url: str,
    name: str,
    newest: int | None = None,
    check: Callable[[Connection], None] = lambda _: None,
) -> tuple[int, str]:
    """Replace the ledger's content with that of a copy; the replaced content is copied first.

    Args:
        url: URL of the ledger.
        name: File path (SQLite) or schema name (PostgreSQL) of the copy to restore.
        newest: Newest schema version that the older software can open; None for no limit.
        check: Function that is called in the transaction before any change; it raises an exception
            to abort.

    Returns:
        The schema version of the restored copy, and the file path or schema name of the new copy of
        the replaced content.

    Raises:
        Finding: The copy belongs to another ledger, is too new, or is out of date: since it was
            made, hours were closed or sealed (their content was fixed), or rules were changed. The
            message lists all reasons.
        UsageError: There is no such copy.
        Unavailable: The database does not respond, or a copy cannot be made.
    """
    changing, _ = open_engine(url)
    try:
        with translate_database_errors(url):
            _check_same_ledger(changing, name)
        with translate_database_errors(url), open_with_copy(changing, name) as (connection, schema):
            lock_for_migration(connection)
            check(connection)
            revision = read_copy_revision(connection, schema)
            if newest is not None and revision > newest:
                raise Finding(
                    f"{name} has schema version {revision}, but the older version supports at "
                    f"most {newest}: use the copy that was made when the ledger was migrated, or "
                    "omit --restore"
                )
            if reasons := list(_since(connection, schema)):
                raise Finding(
                    f"{name} is not restored, because it is older than the ledger: "
                    f"{'; '.join(reasons)}. `hourmark ledger downgrade` without --restore keeps "
                    "all closed buckets"
                )
            copy, commit = (
                back_up(connection),
                max(_commit(connection), _commit(connection, schema)),
            )
            if revision != migrations.read_revision(connection):
                migrations.downgrade(connection, revision)
            held = list(connection.execute(select(tables.leases.c.name)).scalars())
            restore_rows(connection, schema)
            known = set(connection.execute(select(tables.leases.c.name)).scalars())
            if new := [{"name": lease, "epoch": 0} for lease in held if lease not in known]:
                connection.execute(insert(tables.leases), new)
            _fence(connection, commit)
        return revision, copy
    finally:
        changing.dispose()


def _check_same_ledger(engine: Engine, name: str) -> None:
    with open_with_copy(engine, name) as (connection, schema):
        one, other = (
            connection.execute(
                select(tables.meta.c.value).where(tables.meta.c.key == "uuid"),
                execution_options=options,
            ).scalar()
            for options in ({}, {"schema_translate_map": {None: schema}})
        )
    if one != other:
        raise Finding(
            f"{name} is a copy of ledger {other}, but this ledger is {one}; it is not restored"
        )


def _since(connection: Connection, schema: str) -> Iterator[str]:
    of_copy = {"schema_translate_map": {None: schema}}
    buckets = select(tables.buckets.c.type, tables.buckets.c.hour)
    closed = {*connection.execute(buckets)} - {
        *connection.execute(buckets, execution_options=of_copy)
    }
    if closed:
        yield f"{len(closed)} buckets have been closed since"
    frontiers = tables.frontiers.c
    sealed = list(
        connection.execute(
            select(frontiers.type).where(frontiers.state == HourState.SEALED.value)
        ).scalars()
    )
    if sealed:
        yield (
            f"an hour of {', '.join(sorted(sealed))} is sealed and may already be published; let "
            "the driver close it"
        )
    rules = select(tables.rules.c.key)
    if {*connection.execute(rules)} - {*connection.execute(rules, execution_options=of_copy)}:
        yield "`hourmark types apply` has published rules since"


def _commit(connection: Connection, schema: str | None = None) -> int:
    asked = select(tables.meta.c.value).where(_COMMIT)
    return int(
        connection.execute(
            asked, execution_options={"schema_translate_map": {None: schema}}
        ).scalar_one()
    )


def _fence(connection: Connection, commit: int) -> None:
    connection.execute(update(tables.meta).where(_COMMIT).values(value=str(commit + 1)))
    connection.execute(update(tables.leases).values(epoch=commit + 1))
