"""Opens a ledger that is there already: a question must not make a new, empty one."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from etl.ledger.database import Database
from hourmark.config import Config
from hourmark.errors import Unavailable


def existing_ledger(config: Config) -> Database:
    """The ledger. Unavailable, with the next step, where there is none, or where its server does not answer."""
    file = _sqlite_file(config.etl.ledger)
    if file is not None and not file.is_file():
        raise Unavailable(
            f"there is no ledger at {file} (etl.ledger); `hourmark types apply --dir types` makes it. Is this the machine of the "
            "driver, and the configuration that it uses (--config)?"
        )
    return Database(config.etl.ledger)


def _sqlite_file(url: str) -> Path | None:
    try:
        parsed = make_url(url)
    except ArgumentError:
        return None  # `Database` says what is wrong with it
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
