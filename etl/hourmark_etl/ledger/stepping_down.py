"""The way of a ledger back to an older version: its tables step down, or a copy from before is put
back.

Both are one transaction, after a copy of what is there now, and raise the epochs of all leases: a
driver that still runs can change nothing more. Commit number and epochs never fall, so no name that
one of them is part of is ever given twice.

    step down   what closed since stays closed; what only later versions know is dropped
    put back    only where nothing was closed, sealed or declared since: positions go back, and topics are staged again from there
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy import Connection, Engine, insert, select, update

from hourmark.errors import Finding
from hourmark_etl.ledger import migrations, tables
from hourmark_etl.ledger.backups import back_up, beside, put_rows_back, revision_in
from hourmark_etl.ledger.database import available
from hourmark_etl.ledger.engines import lock_for_migration, open_engine
from hourmark_etl.model import HourState

_COMMIT: Final = tables.meta.c.key == "commit"


def step_down(url: str, revision: int, may: Callable[[Connection], None] = lambda _: None) -> str:
    """Take the tables back to the revision; the copy that was made before.

    `may` raises where it may not be, as it stands now.
    """
    changing, _ = open_engine(url)
    try:
        with available(url), changing.begin() as connection:
            lock_for_migration(connection)
            may(connection)
            copy = back_up(connection)
            migrations.downgrade(connection, revision)
            _fence(connection, _commit(connection))
        return copy
    finally:
        changing.dispose()


def put_back(
    url: str,
    name: str,
    newest: int | None = None,
    may: Callable[[Connection], None] = lambda _: None,
) -> tuple[int, str]:
    """Put the copy of that name in place of what is there: its revision, and the copy of what was
    there.

    `newest`: of the revisions that whoever goes on with it can open. Finding, with all reasons,
    where something closed since, or may have. `may`: see `step_down`.
    """
    changing, _ = open_engine(url)
    try:
        with available(url):
            _check_same_ledger(changing, name)
        with available(url), beside(changing, name) as (connection, schema):
            lock_for_migration(connection)
            may(connection)
            revision = revision_in(connection, schema)
            if newest is not None and revision > newest:
                raise Finding(
                    f"{name} has schema version {revision}, and the version that is to go on "
                    f"with it opens none after {newest}: "
                    "name the copy that was made when the ledger was migrated, or go without "
                    "--restore"
                )
            if reasons := list(_since(connection, schema)):
                raise Finding(
                    f"{name} is not put back, as it would be an older copy: "
                    f"{'; '.join(reasons)}. `hourmark ledger downgrade` "
                    "without --restore keeps what was closed"
                )
            copy, commit = (
                back_up(connection),
                max(_commit(connection), _commit(connection, schema)),
            )
            if revision != migrations.revision_of(connection):
                migrations.downgrade(connection, revision)
            held = list(connection.execute(select(tables.leases.c.name)).scalars())
            put_rows_back(connection, schema)
            known = set(connection.execute(select(tables.leases.c.name)).scalars())
            if new := [{"name": lease, "epoch": 0} for lease in held if lease not in known]:
                connection.execute(insert(tables.leases), new)
            _fence(connection, commit)
        return revision, copy
    finally:
        changing.dispose()


def _check_same_ledger(engine: Engine, name: str) -> None:
    with beside(engine, name) as (connection, schema):
        one, other = (
            connection.execute(
                select(tables.meta.c.value).where(tables.meta.c.key == "uuid"),
                execution_options=options,
            ).scalar()
            for options in ({}, {"schema_translate_map": {None: schema}})
        )
    if one != other:
        raise Finding(
            f"{name} is a copy of the ledger {other}, and this one is {one}: it is not put back"
        )


def _since(connection: Connection, schema: str) -> Iterator[str]:
    """What was done since the copy that must not be undone."""
    of_copy = {"schema_translate_map": {None: schema}}
    buckets = select(tables.buckets.c.type, tables.buckets.c.hour)
    closed = {*connection.execute(buckets)} - {
        *connection.execute(buckets, execution_options=of_copy)
    }
    if closed:
        yield f"{len(closed)} buckets were closed since"
    frontiers = tables.frontiers.c
    sealed = list(
        connection.execute(
            select(frontiers.type).where(frontiers.state == HourState.SEALED.value)
        ).scalars()
    )
    if sealed:
        yield (
            f"an hour of {', '.join(sorted(sealed))} is sealed, and may be published: let the "
            "driver close it"
        )
    rules = select(tables.rules.c.key)
    if {*connection.execute(rules)} - {*connection.execute(rules, execution_options=of_copy)}:
        yield "`hourmark types apply` put rules in force since"


def _commit(connection: Connection, schema: str | None = None) -> int:
    asked = select(tables.meta.c.value).where(_COMMIT)
    return int(
        connection.execute(
            asked, execution_options={"schema_translate_map": {None: schema}}
        ).scalar_one()
    )


def _fence(connection: Connection, commit: int) -> None:
    """The next commit is this one, and it has taken all leases."""
    connection.execute(update(tables.meta).where(_COMMIT).values(value=str(commit + 1)))
    connection.execute(update(tables.leases).values(epoch=commit + 1))
