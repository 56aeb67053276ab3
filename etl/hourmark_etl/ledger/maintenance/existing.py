"""Opens the configured ledger, and never creates an empty one in place of a lost one."""

from __future__ import annotations

from typing import Final

from sqlalchemy import select

from hourmark.config.loading import Config
from hourmark.config.redaction import redact_setting
from hourmark.errors import Unavailable
from hourmark_etl.buckets.reader import find_marker, list_types
from hourmark_etl.buckets.selections import find_interrupted, selection_path
from hourmark_etl.errors import LostLedger, NoLedger
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.engines import sqlite_file
from hourmark_etl.ledger.frontier_rows import check_bucket_length
from hourmark_etl.storage import StorageError, open_storage

_HERE: Final = (
    "Check that this is the driver's machine, and that --config is the driver's configuration"
)


def open_existing_ledger(config: Config, *, may_migrate: bool = False) -> Database:
    """Open the configured ledger without creating it.

    Args:
        config: The configuration.
        may_migrate: Whether to migrate a ledger of an older version.

    Returns:
        The open ledger; the caller closes it.

    Raises:
        NoLedger: There is no ledger; the message states the next step.
        LostLedger: There is no ledger or it is empty, but storage contains closed buckets.
        OlderLedger: The ledger has an older version, and `may_migrate` is False.
        UsageError: The ledger's buckets have another length than `parsing.bucket_seconds`, as with
            the configuration of another site.
        Unavailable: The database or the storage does not respond.
    """
    return _opened(config, may_make=False, may_migrate=may_migrate)


def open_or_create_ledger(config: Config) -> Database:
    """Open the configured ledger, and create it if there is none.

    A ledger of an older version is migrated.

    Args:
        config: The configuration.

    Returns:
        The open ledger; the caller closes it.

    Raises:
        LostLedger: There is no ledger or it is empty, but storage contains closed buckets. Rebuild
            it.
        UsageError: The ledger's buckets have another length than `parsing.bucket_seconds`.
        Unavailable: The database or the storage does not respond.
    """
    return _opened(config, may_make=True, may_migrate=True)


def _opened(config: Config, *, may_make: bool, may_migrate: bool) -> Database:
    file = sqlite_file(config.etl.ledger)
    if file and not file.is_file():
        what = f"no ledger exists at {file} (etl.ledger)"
        _refuse_lost(config, what, must_know=not may_make)
        if not may_make:
            raise NoLedger(f"{what}; `hourmark types apply --dir types` creates it. {_HERE}")
    database = Database(config.etl.ledger, may_migrate=may_migrate)
    try:
        check_bucket_length(database, config.parsing.bucket_seconds)
        if all(
            database.fetch(select(table).limit(1)).first() is None
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
    # An empty ledger has not closed the buckets on storage, so it replaces a lost one. A ledger
    # that is created although storage did not respond is refused when a driver starts.
    rebuild = f"`hourmark ledger rebuild --into {redact_setting(config.etl.ledger)}`"
    storage = open_storage(config.storage)
    try:
        markers = (find_marker(storage, event_type) for event_type in list_types(storage))
        marker = next(filter(None, markers), None) or next(
            (selection_path(*hour) for hour in find_interrupted(storage)), None
        )
    except StorageError as error:
        if not must_know:
            return
        raise Unavailable(
            f"{what}, and it is unknown whether it is lost: {error}. Recreate a lost ledger with "
            f"{rebuild}, or create the first one with `hourmark types apply --dir types`. {_HERE}"
        ) from error
    if marker is not None:
        raise LostLedger(
            f"{what}, but {storage.url('')} contains closed buckets ({marker}), so the ledger is "
            f"lost. Restore its newest copy, or recreate it with {rebuild}. {_HERE}. If this is "
            "a new installation, use a separate storage.root"
        )
