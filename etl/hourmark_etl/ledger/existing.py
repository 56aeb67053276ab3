"""Opens the ledger that the configuration names, and never a new one in place of one that is
lost.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import select

from hourmark.config.loading import Config
from hourmark.config.redaction import redact_setting
from hourmark.errors import Unavailable
from hourmark_etl.buckets.reader import find_marker, list_types
from hourmark_etl.errors import NoLedger
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.engines import sqlite_file
from hourmark_etl.storage import StorageError, open_storage

_HERE: Final = "Is this the machine of the driver, and the configuration that it uses (--config)?"


def existing_ledger(config: Config, *, may_migrate: bool = False) -> Database:
    """A ledger that must be there: a question must not make a new, empty one, nor migrate an older
    version's.

    NoLedger, with the next step, where there is none, or where it is lost; Unavailable where a
    server does not answer.
    """
    return _opened(config, may_make=False, may_migrate=may_migrate)


def ledger_to_begin(config: Config) -> Database:
    """The same, and made where there is none; but not in place of one that is lost."""
    return _opened(config, may_make=True, may_migrate=True)


def _opened(config: Config, *, may_make: bool, may_migrate: bool) -> Database:
    file = sqlite_file(config.etl.ledger)
    if file and not file.is_file():
        what = f"there is no ledger at {file} (etl.ledger)"
        _refuse_lost(config, what, must_know=not may_make)
        if not may_make:
            raise NoLedger(f"{what}; `hourmark types apply --dir types` makes it. {_HERE}")
    database = Database(config.etl.ledger, may_migrate=may_migrate)
    try:
        if all(
            database.ask(select(table).limit(1)).first() is None
            for table in (tables.frontiers, tables.buckets)
        ):
            _refuse_lost(
                config,
                f"the ledger (etl.ledger = {redact_setting(config.etl.ledger)}) is empty",
                must_know=not may_make,
            )
    except BaseException:
        database.close()
        raise
    return database


def _refuse_lost(config: Config, what: str, *, must_know: bool) -> None:
    """NoLedger where the root holds closed buckets, which no ledger with nothing in it has closed.

    `must_know`: Unavailable where storage does not answer. A ledger that is begun all the same is
    refused by a driver's start, and can still be filled by a rebuild.
    """
    rebuild = f"`hourmark ledger rebuild --into {redact_setting(config.etl.ledger)}`"
    storage = open_storage(config.storage)
    try:
        marker = next(
            filter(None, (find_marker(storage, event_type) for event_type in list_types(storage))),
            None,
        )
    except StorageError as error:
        if not must_know:
            return
        raise Unavailable(
            f"{what}; whether it is lost cannot be told: {error}. A lost one is recreated by "
            f"{rebuild}, a first one by `hourmark "
            f"types apply --dir types`. {_HERE}"
        ) from error
    if marker is not None:
        raise NoLedger(
            f"{what}, and {storage.url('')} holds closed buckets ({marker}): it is lost. "
            "Restore its newest copy, or make it "
            f"anew by {rebuild}. {_HERE} Where this is a new installation, give it a root of "
            "its own (storage.root)"
        )
