"""How the database of a ledger stands, before anything is asked of the ledger. Makes none, and migrates none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError

from hourmark.errors import Unavailable
from hourmark_etl.ledger import migrations
from hourmark_etl.ledger.engines import open_engine, sqlite_file


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """`settings`: of PostgreSQL, those that were asked for. `is_current`: of this version; `is_ledger`: of any."""

    settings: Mapping[str, str]
    is_current: bool
    is_ledger: bool


def standing(url: str, settings: Iterable[str]) -> Standing | None:
    """None where there is no file of that name. Unavailable, saying why, where it cannot be read."""
    file = sqlite_file(url)
    if file is not None and not file.is_file():
        return None
    changing, reading = open_engine(url)
    try:
        with reading.connect() as connection, connection.begin():
            told = {} if file else {name: str(connection.execute(text(f"SHOW {name}")).scalar()) for name in settings}
            is_current = migrations.is_current(connection)
            return Standing(told, is_current, is_current or inspect(connection).has_table("alembic_version"))
    except DBAPIError as error:
        raise Unavailable(" ".join(str(error.orig).split())) from error
    finally:
        changing.dispose()
        reading.dispose()
