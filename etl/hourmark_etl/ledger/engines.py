"""SQLite and PostgreSQL as databases of a ledger: supported URLs and connection settings.

Both provide durable commits, serialized write transactions and readers with a consistent view.
Passwords are never shown (`hourmark.config.redaction`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from hourmark.config.redaction import redact_setting
from hourmark.errors import ConfigError

_BUSY_MS: Final = 30_000  # how long a transaction waits for the one before it
_PAUSED_MS: Final = (
    60_000  # PostgreSQL aborts the transaction of a stalled driver, which would block all others
)
_CONNECT_S: Final = 10
_READING: Final = "hourmark_reading"  # a read needs no write lock
_ALLOWED: Final = "allowed: sqlite:////absolute/path or postgresql://user:password@host/database"
_MIGRATION_LOCK: Final = 0x484F5552  # any number, the same in every version
# File systems shared between machines: SQLite's write-ahead log needs the shared memory of one.
_NETWORK: Final = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "afs",
        "glusterfs",
        "ocfs2",
        "gfs2",
    )
)


def open_engine(url: str) -> tuple[Engine, Engine]:
    """Create the SQLAlchemy engines of a ledger: one for changes, one for consistent reads.

    No connection is opened yet. The second engine takes no write lock.

    Args:
        url: URL of an SQLite or PostgreSQL database.

    Returns:
        The engine for changes, and the engine for reads.

    Raises:
        ConfigError: The URL (setting etl.ledger) is invalid, or names an unsupported database or a
            file on a network file system.
    """
    parsed = _parsed(url)
    if parsed.get_backend_name() == "sqlite":
        engine = _sqlite(parsed)
        return engine, engine.execution_options(**{_READING: True})
    engine = _postgresql(parsed)
    return engine, engine.execution_options(
        isolation_level="REPEATABLE READ", postgresql_readonly=True
    )


def sqlite_file(url: str) -> Path | None:
    """Return the path of a ledger's SQLite file.

    Args:
        url: URL of the ledger.

    Returns:
        The path; None if the ledger is in PostgreSQL or in memory.

    Raises:
        ConfigError: The URL is invalid or names an unsupported database.
    """
    parsed = _parsed(url)
    return (
        Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
    )


def lock_for_migration(connection: Connection) -> None:
    """Lock the ledger for a schema migration, until the transaction ends.

    On PostgreSQL, an advisory lock excludes other migrations, and a row lock on the commit number
    excludes drivers, which do not take the advisory lock. On SQLite, nothing is done, because the
    write lock of the transaction already excludes all other writers.

    Args:
        connection: The transaction that is about to change the tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
        if inspect(connection).has_table("meta"):
            connection.execute(text("SELECT value FROM meta WHERE key = 'commit' FOR UPDATE"))


def check_driver_placement(url: str, spark_conf: Mapping[str, str]) -> None:
    """Check that a ledger in a local SQLite file is not used in Spark's cluster mode.

    In that mode the cluster may start the driver on any machine, where the file does not exist.

    Args:
        url: URL of the ledger.
        spark_conf: Settings of `spark-submit` by Spark's names; empty if it was not used.

    Raises:
        ConfigError: The ledger is a local file and the driver may start on another machine.
    """
    moves = (
        spark_conf.get("spark.submit.deployMode", "client") == "cluster"
        or spark_conf.get("spark.kubernetes.submitInDriver", "false")
        == "true"  # inside a Kubernetes driver it says "client"
    )
    if moves and sqlite_file(url):
        raise ConfigError(
            f"etl.ledger = {redact_setting(url)} is a local file, but spark.submit.deployMode is "
            "cluster: the next driver may start on another machine, without its ledger. Use "
            "PostgreSQL (postgresql://user@host/database), or deploy mode client"
        )


def check_network_disk(file: Path, mounts: str) -> None:
    """Check that a file is not on a network file system.

    Args:
        file: Path of the SQLite ledger.
        mounts: Content of /proc/mounts.

    Raises:
        ConfigError: The file is on a network file system, where SQLite's write-ahead log is not
            safe.
    """
    fields = [line.split(" ") for line in mounts.splitlines()]
    points = [(f[1].replace("\\040", " "), f[2]) for f in fields if len(f) > 2]
    point, kind = max(
        ((p, k) for p, k in points if file.is_relative_to(p)),
        key=lambda m: len(m[0]),
        default=("", ""),
    )
    if kind.removeprefix("fuse.") in _NETWORK or kind == "fuse.sshfs":
        raise ConfigError(
            f"etl.ledger: {file} is on {point}, a file system of type {kind}, on which SQLite's "
            "write-ahead log is not safe; move it to a local disk, or use PostgreSQL "
            "(postgresql://user@host/database)"
        )


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # of a port that is no number
        raise ConfigError(
            f"etl.ledger is not a database URL; {_ALLOWED}"
        ) from None  # the cause would show it, password and all
    if parsed.get_backend_name() == "postgresql" and parsed.drivername in (
        "postgresql",
        "postgresql+psycopg",
    ):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        raise ConfigError(f"etl.ledger: {parsed.drivername} is not supported; {_ALLOWED}")
    if not parsed.database or not Path(parsed.database).is_absolute():
        raise ConfigError(
            f"etl.ledger = {redact_setting(url)!r}: the path of an SQLite ledger must be absolute: "
            "sqlite:////absolute/path"
        )
    return parsed


def _sqlite(url: URL) -> Engine:
    assert url.database is not None
    file = Path(url.database)
    mounts = Path("/proc/mounts")
    if mounts.is_file():
        check_network_disk(file.resolve(), mounts.read_text())
    file.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": _BUSY_MS / 1000})
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


def _postgresql(url: URL) -> Engine:
    # READ COMMITTED is enough: each change first increments the commit number, and the lock on that
    # row serializes them.
    limits = f"-c lock_timeout={_BUSY_MS} -c idle_in_transaction_session_timeout={_PAUSED_MS}"
    defaults = {
        "connect_timeout": str(_CONNECT_S),
        "target_session_attrs": "read-write",
        "application_name": "hourmark",
    }
    given = {name: value for name, value in url.query.items() if name != "options"}
    options = f"{limits} {url.query.get('options', '')}".strip()
    return create_engine(
        url.set(query={**defaults, **given, "options": options}),
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,  # the server may have restarted since the last transaction
    )
