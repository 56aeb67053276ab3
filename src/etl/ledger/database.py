"""Engine, transactions, leases. Every change to the ledger goes through `Database.transaction`.

A lease names a role ("consumer:default", "closer"); taking it raises its epoch, and a transaction whose epoch is no longer the
lease's fails: so a driver that was paused and wakes can change nothing. Each transaction counts the commit number up; an epoch
is the number of the commit that took it, so the epochs of all leases are in one order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, Connection, Engine, Text, cast, create_engine, event, insert, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, OperationalError

from etl.errors import EtlStop, StaleDriver
from etl.ledger import tables
from hourmark.errors import ConfigError, Unavailable

_BUSY_MS = 30_000
_READING = "hourmark_reading"  # a read needs no write lock


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """The right to act in a role, until somebody takes it anew."""

    name: str
    epoch: int


class Database:
    """One ledger. Safe to use from several threads; transactions of one ledger are serial."""

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        try:
            tables.metadata.create_all(self._engine)
            self._begin_ledger()
        except OperationalError as error:
            raise Unavailable(
                f"the ledger (etl.ledger = {_shown(url)}) cannot be opened: {error.orig}; check path and rights"
            ) from error

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    def acquire(self, name: str) -> Lease:
        """Take the lease: from now on, whoever held it is refused."""
        with self._engine.begin() as connection:
            epoch = _count_commit(connection)
            taken = connection.execute(update(tables.leases).where(tables.leases.c.name == name).values(epoch=epoch))
            if taken.rowcount == 0:
                connection.execute(insert(tables.leases).values(name=name, epoch=epoch))
        return Lease(name, epoch)

    @contextlib.contextmanager
    def transaction(self, lease: Lease | None = None) -> Iterator[Connection]:
        """One transaction that counts as a commit. StaleDriver, with nothing changed, if the lease has been taken anew."""
        with self._engine.begin() as connection:
            _count_commit(connection)
            if lease is not None:
                epoch = connection.execute(select(tables.leases.c.epoch).where(tables.leases.c.name == lease.name)).scalar()
                if epoch != lease.epoch:
                    raise StaleDriver(
                        f"the lease {lease.name} was taken over (epoch {epoch}, this driver has {lease.epoch}): another driver "
                        "runs; this one stops. If it should not run, stop it and start this one again"
                    )
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view; changes nothing."""
        with self._engine.connect().execution_options(**{_READING: True}) as connection:
            yield connection

    def identity(self) -> tuple[str, int]:
        """UUID of the ledger and number of its last commit: they stand in every manifest."""
        with self.reading() as connection:
            rows: dict[str, str] = dict(connection.execute(select(tables.meta.c.key, tables.meta.c.value)).all())
        return rows["uuid"], int(rows["commit"])

    def _begin_ledger(self) -> None:
        with self.reading() as connection:
            rows: dict[str, str] = dict(connection.execute(select(tables.meta.c.key, tables.meta.c.value)).all())
        if not rows:
            first = {"uuid": str(uuid.uuid4()), "commit": "0", "schema_version": str(tables.SCHEMA_VERSION)}
            try:
                with self._engine.begin() as connection:
                    connection.execute(insert(tables.meta), [{"key": k, "value": v} for k, v in first.items()])
            except IntegrityError:  # somebody else began it at the same moment
                pass
            return
        if int(rows["schema_version"]) != tables.SCHEMA_VERSION:
            raise EtlStop(
                f"the ledger has schema version {rows['schema_version']}, this software {tables.SCHEMA_VERSION}; "
                "run the software that wrote it, or migrate a copy first"
            )


def _count_commit(connection: Connection) -> int:
    """The first statement of every change: its row lock makes transactions serial, whatever the database's isolation."""
    number = cast(tables.meta.c.value, BigInteger) + 1
    counted = (
        update(tables.meta).where(tables.meta.c.key == "commit").values(value=cast(number, Text)).returning(tables.meta.c.value)
    )
    return int(connection.execute(counted).scalar_one())


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigError(f"etl.ledger = {url!r} is no database URL; write sqlite:////absolute/path") from error
    if parsed.get_backend_name() != "sqlite":
        raise ConfigError(f"etl.ledger: {parsed.get_backend_name()} is not supported yet; write sqlite:////absolute/path")
    if not parsed.database or not Path(parsed.database).is_absolute():
        raise ConfigError(f"etl.ledger = {url!r}: the path of an SQLite ledger must be absolute: sqlite:////absolute/path")
    Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed, connect_args={"timeout": _BUSY_MS / 1000})
    event.listen(engine, "connect", _on_sqlite_connect)
    event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def _on_sqlite_connect(connection: Any, _: object) -> None:
    connection.isolation_level = None  # SQLAlchemy's BEGIN below is the only one
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _on_sqlite_begin(connection: Connection) -> None:
    reading = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN DEFERRED" if reading else "BEGIN IMMEDIATE")


def _shown(url: str) -> str:
    return make_url(url).render_as_string(hide_password=True)
