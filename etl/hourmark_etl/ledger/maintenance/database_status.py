"""The state of a ledger's database, read without creating or migrating it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError

from hourmark.errors import Unavailable
from hourmark_etl.ledger import migrations
from hourmark_etl.ledger.engines import open_engine, sqlite_file

_CLOCK: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


@dataclasses.dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """The state of a ledger's database, read without changing it.

    Attributes:
        settings: Values of the requested PostgreSQL settings by name; empty for SQLite.
        answers: Maps each requested SQL condition to whether it is true; empty for SQLite.
        clock_ms: Current time of the PostgreSQL server, Unix milliseconds; None for SQLite.
        is_current: Whether the database contains a ledger with this software's schema version.
        is_ledger: Whether the database contains a ledger with any schema version.
    """

    settings: Mapping[str, str]
    answers: Mapping[str, bool]
    clock_ms: int | None
    is_current: bool
    is_ledger: bool


def read_database_status(
    url: str, settings: Iterable[str] = (), conditions: Iterable[str] = ()
) -> DatabaseStatus | None:
    """Return the state of a ledger's database, or None if an SQLite file does not exist.

    Args:
        url: URL of the ledger.
        settings: Names of PostgreSQL settings to read.
        conditions: Boolean SQL expressions to evaluate on PostgreSQL, such as permission checks.

    Raises:
        Unavailable: The database cannot be read; the message states why.
        ConfigError: The URL is invalid.
    """
    file = sqlite_file(url)
    if file is not None and not file.is_file():
        return None
    changing, reading = open_engine(url)
    try:
        with reading.connect() as connection, connection.begin():
            values = (
                {}
                if file
                else {
                    name: str(connection.execute(text(f"SHOW {name}")).scalar())
                    for name in settings
                }
            )
            rights = (
                {}
                if file
                else {
                    ask: bool(connection.execute(text(f"SELECT {ask}")).scalar())
                    for ask in conditions
                }
            )
            clock_ms = None if file else int(connection.execute(text(_CLOCK)).scalar_one())
            is_current = migrations.is_current(connection)
            return DatabaseStatus(
                values,
                rights,
                clock_ms,
                is_current,
                is_current or inspect(connection).has_table("alembic_version"),
            )
    except DBAPIError as error:
        raise Unavailable(" ".join(str(error.orig).split())) from error
    finally:
        changing.dispose()
        reading.dispose()
