"""Transactions and leases; every change to the ledger goes through `Database.transaction`.

A lease names a role ("consumer:default", "closer"). Taking it raises its epoch, and a transaction
with an outdated epoch fails, so a driver that was paused can change nothing when it resumes. Each
transaction increments the commit number. An epoch is the number of the commit that took it, so the
epochs of all leases are totally ordered.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    Result,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, OperationalError

from hourmark.config.redaction import redact_setting
from hourmark.errors import Unavailable
from hourmark_etl.errors import EtlStop, OlderLedger, StaleDriver
from hourmark_etl.ledger import migrations, tables
from hourmark_etl.ledger.engines import lock_for_migration, open_engine
from hourmark_etl.ledger.maintenance.backups import back_up

CLOSER: Final = "closer"  # the name of the lease of closing
_NAMES_AT_ONCE: Final = 500  # in one IN list, far below every database's limit of variables


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """The exclusive right of one process to act in a role, until another process takes the lease.

    The lease fences a paused process: its next transaction fails if the lease was taken over.

    Attributes:
        name: Name of the role, such as "closer".
        epoch: Commit number of the transaction that took the lease. It increases with each owner.
    """

    name: str
    epoch: int


class Database:
    """A thread-safe connection pool to the ledger, the SQL database with the state of the ETL.

    The constructor creates the tables of an empty database. If the ledger has an older schema
    version, the constructor copies and migrates it, or raises `OlderLedger` if `may_migrate` is
    False. Transactions that change the ledger are executed one at a time.
    """

    def __init__(
        self,
        url: str,
        *,
        may_migrate: bool = True,
        compiled_cache: dict[Any, Any] | None = None,
    ) -> None:
        """Connect to a ledger.

        Args:
            url: SQLAlchemy URL of the database.
            may_migrate: Whether a ledger with an older schema version is migrated. If False,
                `OlderLedger` is raised.
            compiled_cache: Cache of compiled statements that several `Database` objects share; each
                has its own by default.

        Raises:
            ConfigError: The URL is invalid or names an unsupported database.
            OlderLedger: The ledger has an older schema version, and `may_migrate` is False.
            EtlStop: The ledger cannot be migrated, was written by a newer version of the software,
                or is damaged.
            Unavailable: The database does not respond.
        """
        self._url = url
        engines = open_engine(url)
        if compiled_cache is not None:
            engines = (
                engines[0].execution_options(compiled_cache=compiled_cache),
                engines[1].execution_options(compiled_cache=compiled_cache),
            )
        self._changing, self._reading = engines
        try:
            with translate_database_errors(self._url):
                self._begin_ledger(may_migrate=may_migrate)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections of the pool."""
        self._changing.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def acquire(self, name: str) -> Lease:
        """Take over the lease of a role from its current owner, if there is one.

        Transactions under an earlier lease of the role then raise `StaleDriver`.

        Args:
            name: Name of the role, such as "closer".

        Returns:
            The new lease. It is valid until another process acquires the same role.

        Raises:
            Unavailable: The database does not respond.
        """
        with translate_database_errors(self._url), self._changing.begin() as connection:
            epoch = _count_commit(connection)
            replace_rows(connection, tables.leases, ["name"], [{"name": name, "epoch": epoch}])
        return Lease(name, epoch)

    def epoch(self, name: str) -> int:
        """Return the epoch of the current lease of a role.

        Args:
            name: Name of the role, such as "closer".

        Returns:
            The commit number of the transaction that took the lease; 0 if the lease was never
            taken.

        Raises:
            Unavailable: The database does not respond.
        """
        return (
            self.fetch(select(tables.leases.c.epoch).where(tables.leases.c.name == name)).scalar()
            or 0
        )

    @contextlib.contextmanager
    def transaction(self, lease: Lease | None = None) -> Iterator[Connection]:
        """Run the block in a transaction, which increments the ledger's commit number.

        The transaction is committed after the block, and rolled back if the block raises an
        exception.

        Args:
            lease: Lease that must still be valid; None if the change requires no lease.

        Yields:
            The connection of the transaction.

        Raises:
            StaleDriver: Another process has taken over the lease; the block was not run.
            Unavailable: The database does not respond. The transaction may have been committed, so
                read the ledger again before retrying.
            EtlStop: The database is damaged.
        """
        with translate_database_errors(self._url), self._changing.begin() as connection:
            _count_commit(connection)
            if lease is not None:
                epoch = connection.execute(
                    select(tables.leases.c.epoch).where(tables.leases.c.name == lease.name)
                ).scalar()
                if epoch != lease.epoch:
                    raise StaleDriver(
                        f"another driver has taken over the lease {lease.name} (epoch {epoch}, "
                        f"this driver has {lease.epoch}), so this driver stops. If the other "
                        "driver should not be running, stop it and start this one again"
                    )
            yield connection

    def check_lease(self, lease: Lease) -> None:
        """Check that a lease is still valid before an action outside the ledger.

        Inside the ledger, pass the lease to `transaction` instead.

        Args:
            lease: The lease to check.

        Raises:
            StaleDriver: Another process has taken over the lease; do not perform the action.
            Unavailable: The database does not respond.
        """
        with self.transaction(lease):
            pass

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Run the block in a read-only transaction, in which all queries see the same state.

        Yields:
            The connection of the transaction.

        Raises:
            Unavailable: The database does not respond.
        """
        with (
            translate_database_errors(self._url),
            self._reading.connect() as connection,
            connection.begin(),
        ):
            yield connection

    def fetch(self, query: Executable) -> Result[*tuple[Any, ...]]:
        """Run a query in its own read-only transaction and return the complete result.

        Use `reading` if several queries must see the same state.

        Args:
            query: The query; it must not change the ledger.

        Returns:
            The result with all rows in memory.

        Raises:
            Unavailable: The database does not respond.
        """
        with self.reading() as connection:
            return connection.execute(query).freeze()()

    def identity(self) -> tuple[str, int]:
        """Return the ledger's id and commit number, which together identify its current state.

        Returns:
            A pair: the ledger's UUID as text, and the number of its last commit.

        Raises:
            Unavailable: The database does not respond.
        """
        rows: dict[str, str] = dict(
            self.fetch(select(tables.meta.c.key, tables.meta.c.value)).all()
        )
        return rows["uuid"], int(rows["commit"])

    def _begin_ledger(self, *, may_migrate: bool) -> None:
        with self._reading.connect() as connection:
            if migrations.is_current(connection):
                return
            if (revision := migrations.read_revision(connection)) is not None and not may_migrate:
                raise OlderLedger(
                    f"the ledger has schema version {revision}, but this version of Hourmark "
                    f"requires {migrations.newest()}. `hourmark etl run` and `hourmark ledger "
                    "upgrade` copy and migrate the ledger. Other commands do not, because the "
                    "version that wrote the ledger could no longer open it"
                )
        with self._changing.begin() as connection:
            lock_for_migration(connection)
            is_older = (
                not migrations.is_current(connection)
                and migrations.read_revision(connection) is not None
            )
            if is_older:
                back_up(connection)
            migrations.upgrade(connection)
            if (
                is_older
            ):  # a driver of the older version that still runs would drop what it does not know
                commit = connection.execute(
                    select(tables.meta.c.value).where(tables.meta.c.key == "commit")
                ).scalar_one()
                connection.execute(
                    update(tables.leases).values(epoch=int(commit) + 1)
                )  # as of the first commit to come
            if connection.execute(select(tables.meta.c.key)).first() is None:
                first = {"uuid": str(uuid.uuid4()), "commit": "0"}
                connection.execute(
                    insert(tables.meta), [{"key": k, "value": v} for k, v in first.items()]
                )


@contextlib.contextmanager
def translate_database_errors(url: str) -> Iterator[None]:
    """Convert SQLAlchemy errors raised in the block to errors that name the ledger.

    Args:
        url: URL of the ledger; its password is not part of the messages.

    Raises:
        Unavailable: The database does not respond or refuses connections.
        EtlStop: The database file is damaged or not a database.
    """
    try:
        yield
    except (DBAPIError, UnicodeDecodeError) as error:
        # No narrower word: SQLite's for a file that is damaged, or none of its own. It may name
        # what is no text any more.
        if type(error) in (DatabaseError, UnicodeDecodeError):
            raise EtlStop(
                f"the ledger (etl.ledger = {redact_setting(url)}) cannot be read: "
                f"{getattr(error, 'orig', error)}; restore the newest copy, or recreate it with "
                "`hourmark ledger rebuild`"
            ) from error
        assert isinstance(error, DBAPIError)
        if not (
            isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
        ):
            raise
        raise Unavailable(
            f"the ledger (etl.ledger = {redact_setting(url)}) does not respond: "
            f"{' '.join(str(error.orig).split())}; check that its server is running and accepts "
            "this user or, for a file, check its path, permissions and free disk space"
        ) from error


def select_by_names(
    connection: Connection,
    query: Select[Any],
    column: ColumnElement[str],
    names: Sequence[str] | None,
) -> Iterator[Mapping[Any, Any]]:
    """Yield the rows of a query in which a column has one of the given values.

    The values are split over several queries, to stay below the databases' limits on parameters.

    Args:
        connection: A transaction of the ledger.
        query: The query to restrict.
        column: The column to compare.
        names: Accepted values; if empty, nothing is yielded. None accepts every value.
    """
    if names is None:
        yield from connection.execute(query).mappings()
        return
    for at in range(0, len(names), _NAMES_AT_ONCE):
        yield from connection.execute(
            query.where(column.in_(names[at : at + _NAMES_AT_ONCE]))
        ).mappings()


def replace_rows(
    connection: Connection, table: Table, key: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Insert rows into a table, replacing existing rows with the same key.

    Args:
        connection: The caller's transaction.
        table: Table to change.
        key: Names of the key columns.
        rows: Column values of the new rows. All existing rows with one of their keys are deleted
            first.
    """
    delete_rows(connection, table, key, rows)
    if rows:
        connection.execute(insert(table), rows)


def delete_rows(
    connection: Connection, table: Table, key: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Delete all rows that have the same key as one of the given rows.

    Args:
        connection: The caller's transaction.
        table: Table to change.
        key: Names of the key columns.
        rows: Rows that have at least the key columns.
    """
    if rows:
        same = [table.c[name] == bindparam(name) for name in key]
        keys = dict.fromkeys(tuple(row[name] for name in key) for row in rows)  # each once
        connection.execute(
            delete(table).where(*same), [dict(zip(key, values, strict=True)) for values in keys]
        )


def _count_commit(connection: Connection) -> int:
    # Increment the commit number and return it. The first statement of every change: its row lock
    # serializes transactions at any isolation level.
    number = cast(tables.meta.c.value, BigInteger) + 1
    counted = (
        update(tables.meta)
        .where(tables.meta.c.key == "commit")
        .values(value=cast(number, Text))
        .returning(tables.meta.c.value)
    )
    return int(connection.execute(counted).scalar_one())
