"""Transactions, leases. Every change to the ledger goes through `Database.transaction`.

A lease names a role ("consumer:default", "closer"); taking it raises its epoch, and a transaction
whose epoch is no longer the lease's fails: so a driver that was paused and wakes can change
nothing. Each transaction counts the commit number up; an epoch is the number of the commit that
took it, so the epochs of all leases are in one order.
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
from hourmark_etl.ledger.backups import back_up
from hourmark_etl.ledger.engines import lock_for_migration, open_engine

CLOSER: Final = "closer"  # the name of the lease of closing
_NAMES_AT_ONCE: Final = 500  # in one IN list, far below every database's limit of variables


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """The right to act in a role, until somebody takes it anew."""

    name: str
    epoch: int


class Database:
    """One ledger. Safe to use from several threads; transactions of one ledger are serial.

    `may_migrate`: whether an older version's is brought to this one's form, after a copy of it was
    made. OlderLedger where not.
    """

    def __init__(self, url: str, *, may_migrate: bool = True) -> None:
        self._url = url
        self._changing, self._reading = open_engine(url)
        try:
            with available(self._url):
                self._begin_ledger(may_migrate=may_migrate)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of all connections."""
        self._changing.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def acquire(self, name: str) -> Lease:
        """Take the lease: from now on, whoever held it is refused."""
        with available(self._url), self._changing.begin() as connection:
            epoch = _count_commit(connection)
            put(connection, tables.leases, ["name"], [{"name": name, "epoch": epoch}])
        return Lease(name, epoch)

    def epoch(self, name: str) -> int:
        """Of whoever took the lease last; 0 if nobody ever did."""
        return (
            self.ask(select(tables.leases.c.epoch).where(tables.leases.c.name == name)).scalar()
            or 0
        )

    @contextlib.contextmanager
    def transaction(self, lease: Lease | None = None) -> Iterator[Connection]:
        """One transaction that counts as a commit. StaleDriver, with nothing changed, if the lease
        has been taken anew.

        Unavailable where the database does not answer: whether it committed may then be unknown,
        and must be read again.
        """
        with available(self._url), self._changing.begin() as connection:
            _count_commit(connection)
            if lease is not None:
                epoch = connection.execute(
                    select(tables.leases.c.epoch).where(tables.leases.c.name == lease.name)
                ).scalar()
                if epoch != lease.epoch:
                    raise StaleDriver(
                        f"the lease {lease.name} was taken over (epoch {epoch}, this driver has "
                        f"{lease.epoch}): another driver "
                        "runs; this one stops. If it should not run, stop it and start this "
                        "one again"
                    )
            yield connection

    def check_lease(self, lease: Lease) -> None:
        """StaleDriver if it has been taken anew: before something is done outside the ledger."""
        with self.transaction(lease):
            pass

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view; changes nothing."""
        with available(self._url), self._reading.connect() as connection, connection.begin():
            yield connection

    def ask(self, query: Executable) -> Result[*tuple[Any, ...]]:
        """What the query finds, all of it, in a view of its own."""
        with self.reading() as connection:
            return connection.execute(query).freeze()()

    def identity(self) -> tuple[str, int]:
        """UUID of the ledger and number of its last commit: they stand in every manifest."""
        rows: dict[str, str] = dict(self.ask(select(tables.meta.c.key, tables.meta.c.value)).all())
        return rows["uuid"], int(rows["commit"])

    def _begin_ledger(self, *, may_migrate: bool) -> None:
        with self._reading.connect() as connection:
            if migrations.is_current(connection):
                return
            if (revision := migrations.revision_of(connection)) is not None and not may_migrate:
                raise OlderLedger(
                    f"the ledger has schema version {revision}, this software works with "
                    f"{migrations.newest()}: `hourmark etl "
                    "run` migrates it at its start, or `hourmark ledger upgrade`, after a copy "
                    "of it was made. A question does "
                    "not: the version that wrote it would be refused from then on"
                )
        with self._changing.begin() as connection:
            lock_for_migration(connection)
            is_older = (
                not migrations.is_current(connection)
                and migrations.revision_of(connection) is not None
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
def available(url: str) -> Iterator[None]:
    """Unavailable for everything that says that the database, not the question, is in trouble."""
    try:
        yield
    except (DBAPIError, UnicodeDecodeError) as error:
        # No narrower word: SQLite's for a file that is damaged, or none of its own. It may name
        # what is no text any more.
        if type(error) in (DatabaseError, UnicodeDecodeError):
            raise EtlStop(
                f"the ledger (etl.ledger = {redact_setting(url)}) cannot be read: "
                f"{getattr(error, 'orig', error)}; restore the newest "
                "copy, or recreate it by `hourmark ledger rebuild`"
            ) from error
        assert isinstance(error, DBAPIError)
        if not (
            isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
        ):
            raise
        raise Unavailable(
            f"the ledger (etl.ledger = {redact_setting(url)}) does not answer: "
            f"{' '.join(str(error.orig).split())}; check that its "
            "server runs and that this user may connect, or, for a file, path, rights and free "
            "space"
        ) from error


def rows_named(
    connection: Connection, query: Select[Any], column: ColumnElement[str], names: Sequence[str]
) -> Iterator[Mapping[Any, Any]]:
    """What the query finds with one of these names in the column."""
    for at in range(0, len(names), _NAMES_AT_ONCE):
        yield from connection.execute(
            query.where(column.in_(names[at : at + _NAMES_AT_ONCE]))
        ).mappings()


def put(
    connection: Connection, table: Table, key: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Add rows, in place of all that have the same `key` columns."""
    remove(connection, table, key, rows)
    if rows:
        connection.execute(insert(table), rows)


def remove(
    connection: Connection, table: Table, key: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Delete all rows that have the same `key` columns as one of these."""
    if rows:
        same = [table.c[name] == bindparam(name) for name in key]
        keys = dict.fromkeys(tuple(row[name] for name in key) for row in rows)  # each once
        connection.execute(
            delete(table).where(*same), [dict(zip(key, values, strict=True)) for values in keys]
        )


def _count_commit(connection: Connection) -> int:
    """The first statement of every change: its row lock makes transactions serial, whatever the
    database's isolation.
    """
    number = cast(tables.meta.c.value, BigInteger) + 1
    counted = (
        update(tables.meta)
        .where(tables.meta.c.key == "commit")
        .values(value=cast(number, Text))
        .returning(tables.meta.c.value)
    )
    return int(connection.execute(counted).scalar_one())
