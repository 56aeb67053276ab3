"""Copies of a ledger, made before its tables are changed, and restored if nothing was closed since.

SQLite      a file next to the ledger: <ledger>.revision-2-commit-1234
PostgreSQL  a schema of the same database, with the rows only: hourmark_revision_2_commit_1234

The copy is made in the transaction that changes the tables. Copies are never deleted automatically.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import ProgrammingError

from hourmark.errors import Unavailable, UsageError
from hourmark.process.durable import sync_folder
from hourmark_etl.ledger import migrations, tables

ATTACHED: Final = "backup"  # an SQLite copy's name within a connection that reads both
_VERSIONS: Final = "alembic_version"
_VALUE: Final = "SELECT value FROM {}meta WHERE key = :key"
_LOG = logging.getLogger(__name__)


def back_up(connection: Connection) -> str:
    """Copy the committed content of the ledger, and return the copy's file path or schema name.

    An existing copy of the same ledger, schema version and commit is kept on PostgreSQL and
    replaced on SQLite.

    Args:
        connection: The transaction that is about to change the tables.

    Returns:
        The file path of the copy on SQLite; the name of its database schema on PostgreSQL.

    Raises:
        Unavailable: The copy cannot be made; the caller must not change the ledger.
    """
    revision = migrations.read_revision(connection)
    uuid, commit = (
        connection.execute(text(_VALUE.format("")), {"key": key}).scalar_one()
        for key in ("uuid", "commit")
    )
    if connection.dialect.name == "sqlite":
        file = Path(str(connection.engine.url.database))
        name = str(file.with_name(f"{file.name}.revision-{revision}-commit-{commit}"))
        if Path(name).is_file():
            _check_own(name, _uuid_in(Path(name)), uuid)
        _copy_file(file, Path(name))
    else:
        name = f"hourmark_revision_{revision}_commit_{commit}"
        _copy_schema(connection, name, uuid)
    _LOG.info(
        "the ledger with schema version %s was copied to %s before its migration", revision, name
    )
    return name


def read_ledger_columns(connection: Connection, schema: str | None = None) -> dict[str, list[str]]:
    """Return the names of the ledger's existing tables, each with the names of its columns.

    The function works with a ledger of any version. The table of the schema version is omitted.

    Args:
        connection: A connection to the database.
        schema: Database schema to inspect; None for the default one.

    Returns:
        Column names by table name. A table comes after all tables that its foreign keys refer to.
    """
    inspector = inspect(connection)
    there = set(inspector.get_table_names(schema))
    names = [
        table.name for table in tables.metadata.sorted_tables if table.name in there
    ]  # referenced ones first
    return {
        name: [column["name"] for column in inspector.get_columns(name, schema)] for name in names
    }


@contextlib.contextmanager
def open_with_copy(engine: Engine, name: str) -> Iterator[tuple[Connection, str]]:
    """Run the block in a transaction that can access both the ledger and a copy of it.

    Args:
        engine: Engine of the ledger.
        name: File path (SQLite) or schema name (PostgreSQL) of the copy.

    Yields:
        The connection, and the name of the database schema that contains the copy's tables.

    Raises:
        UsageError: The copy does not exist, is the ledger itself, or is not a copy of a ledger.
    """
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            if not Path(name).is_file():
                raise UsageError(
                    f"the copy {name} does not exist; copies are next to the ledger, with names "
                    f"{engine.url.database}.revision-…"
                )
            if Path(name).samefile(str(engine.url.database)):
                raise UsageError(
                    f"{name} is the ledger itself; copies are next to it, with names "
                    f"{engine.url.database}.revision-…"
                )
            if _uuid_in(Path(name)) is None:
                raise UsageError(
                    f"{name} is not a copy of a ledger; copies have names "
                    f"{engine.url.database}.revision-…"
                )
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            raw.execute(f"ATTACH ? AS {ATTACHED}", (name,))
            try:
                with connection.begin():
                    yield connection, ATTACHED
            finally:
                raw.execute(f"DETACH {ATTACHED}")
        else:
            with connection.begin():
                if name not in inspect(connection).get_schema_names():
                    raise UsageError(
                        f"the copy {name} does not exist; copies are schemas of the ledger's "
                        "database with names hourmark_revision_…"
                    )
                if name == inspect(connection).default_schema_name:
                    raise UsageError(
                        f"{name} is the ledger itself; copies are other schemas of its database, "
                        "with names hourmark_revision_…"
                    )
                if not inspect(connection).has_table(tables.meta.name, name):
                    raise UsageError(
                        f"{name} is not a copy of a ledger; copies are schemas with names "
                        "hourmark_revision_…"
                    )
                yield connection, name


def read_copy_revision(connection: Connection, schema: str) -> int:
    """Return the schema version of a copy of the ledger.

    Args:
        connection: A connection from `open_with_copy`.
        schema: Name of the database schema that contains the copy's tables.

    Returns:
        The version number, to be compared with `migrations.newest()`.
    """
    query = f"SELECT version_num FROM {_quoted(connection, schema)}.{_VERSIONS}"  # noqa: S608
    return int(connection.execute(text(query)).scalar_one())


def restore_rows(connection: Connection, schema: str) -> None:
    """Replace all rows of the ledger with those of a copy, except the rows of the table `meta`.

    The ledger's tables must have the schema version of the copy. The table `meta` is kept because
    it identifies the ledger and contains its commit number.

    Args:
        connection: A connection from `open_with_copy`.
        schema: Name of the database schema that contains the copy's tables.
    """
    copied = {
        name: columns
        for name, columns in read_ledger_columns(connection, schema).items()
        if name != tables.meta.name
    }
    for name in reversed(copied):
        # names of tables and columns
        connection.execute(text(f"DELETE FROM {_quoted(connection, name)}"))  # noqa: S608
    for name, columns in copied.items():
        listed = ", ".join(_quoted(connection, column) for column in columns)
        connection.execute(
            text(
                f"INSERT INTO {_quoted(connection, name)} ({listed}) "  # noqa: S608
                f"SELECT {listed} FROM {_quoted(connection, schema)}.{_quoted(connection, name)}"
            )
        )


def _copy_file(ledger: Path, target: Path) -> None:
    # SQLite's own backup includes the write-ahead log, but not this transaction's changes.
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        source = sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True)
        with contextlib.closing(source), contextlib.closing(sqlite3.connect(temporary)) as copy:
            source.backup(copy)
            copy.execute(
                "PRAGMA journal_mode=DELETE"
            ).fetchall()  # a single file, without a write-ahead log
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    except (sqlite3.Error, OSError) as error:
        temporary.unlink(missing_ok=True)
        raise Unavailable(
            f"the ledger must be copied before it is changed, but {target} cannot be written: "
            f"{error}; free as much disk space as the ledger occupies, and start again. Nothing "
            "was changed"
        ) from error


def _uuid_in(file: Path) -> str | None:
    try:
        with contextlib.closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        ) as copy:
            ((uuid,),) = copy.execute(_VALUE.format(""), {"key": "uuid"}).fetchall()
            return str(uuid)
    except (sqlite3.Error, ValueError):
        return None


def _check_own(name: str, found: str | None, uuid: str) -> None:
    # An existing copy must be of this ledger and commit, as after an interrupted migration.
    if found != uuid:
        raise Unavailable(
            f"the ledger must be copied before it is changed, but {name} exists and is not a "
            "copy of this ledger; rename it, then start again. Nothing was changed"
        )


def _copy_schema(connection: Connection, name: str, uuid: str) -> None:
    copied = read_ledger_columns(connection)
    try:
        with connection.begin_nested():
            connection.execute(text(f"CREATE SCHEMA {name}"))
    except ProgrammingError as error:
        if name in inspect(connection).get_schema_names():
            has_meta = inspect(connection).has_table(tables.meta.name, name)
            found = (
                connection.execute(text(_VALUE.format(f"{name}.")), {"key": "uuid"}).scalar()
                if has_meta
                else None
            )
            _check_own(name, found, uuid)
            return
        reason = str(error.orig).splitlines()[0]
        user, database = connection.execute(text("SELECT current_user, current_database()")).one()
        raise Unavailable(
            f"the ledger must be copied before it is changed, but the schema {name} for the copy "
            f"cannot be created in its database: {reason}. GRANT CREATE ON DATABASE {database} "
            f"TO {user}, then start again. Nothing was changed"
        ) from error
    for table in (*copied, _VERSIONS):
        connection.execute(
            text(
                f"CREATE TABLE {name}.{_quoted(connection, table)} AS TABLE "
                f"{_quoted(connection, table)}"
            )
        )


def _quoted(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote(name)
