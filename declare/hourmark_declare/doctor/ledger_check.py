"""Checks the existing ledger and its database. Never creates or migrates a ledger."""

from __future__ import annotations

from collections.abc import Iterator

from hourmark.config.loading import Config
from hourmark.errors import Unavailable, UsageError
from hourmark.records.manifest import MARKER
from hourmark_declare.doctor.check_result import DoctorCheckResult, finding_result, passed_result
from hourmark_declare.doctor.ledger_evaluation import (
    CHECK,
    RIGHTS,
    SETTINGS,
    VERSION,
    evaluate_postgresql,
    evaluate_privileges,
)
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.maintenance.database_status import read_database_status
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.model import HourState
from hourmark_etl.storage import StorageError, open_storage


def check_ledger(config: Config) -> Iterator[DoctorCheckResult]:
    """Check whether the ledger (the ETL's database) is available and has the current version.

    The newest bucket that is closed according to the ledger must also exist on storage. For
    PostgreSQL, durability settings and privileges are checked, too.

    Args:
        config: Configuration with the setting `etl.ledger`, the location of the database.

    Yields:
        One result for each aspect, or a single finding if the database cannot be read.
    """
    try:
        found = read_database_status(config.etl.ledger, (*SETTINGS, VERSION), RIGHTS)
    except Unavailable as error:
        yield finding_result(
            CHECK,
            "etl.ledger",
            f"it cannot be read: {error}",
            "check that its server runs and this user may connect, or, for a file, path and "
            "rights; a damaged one: restore "
            "the newest copy, or `hourmark ledger rebuild`",
        )
        return
    if found is not None and found.settings:
        yield from evaluate_postgresql(found.settings)
        yield from evaluate_privileges(found.answers)
    if found is not None and not found.is_current:
        yield _other_version(found.is_ledger)
        return
    try:
        ledger = open_existing_ledger(config)
    except UsageError as error:
        to_do = "`hourmark config show` names the file of each setting"
        yield finding_result(CHECK, "etl.ledger", str(error), to_do)
        return
    with ledger:
        identity, commit = ledger.identity()
        yield passed_result(CHECK, "etl.ledger", f"ledger {identity}, commit {commit}")
        yield from _buckets_on_storage(ledger, config)


def _buckets_on_storage(ledger: Database, config: Config) -> Iterator[DoctorCheckResult]:
    # The newest closed bucket stands for all: a root of another site has none of them.
    closed = [
        (f.previous_hour, f.event_type)
        for f in frontiers(ledger, config.parsing.bucket_seconds)
        if f.state is not HourState.DAMAGED and f.previous_hour is not None
    ]
    if not closed:
        return
    hour, event_type = max(closed)
    path = f"{hour.bucket_path(event_type)}/{MARKER}"
    try:
        is_there = open_storage(config.storage).exists(path)
    except StorageError:  # the check of storage reports it
        return
    if not is_there:
        yield finding_result(
            CHECK,
            "storage.root",
            f"the ledger has closed {event_type} {hour}, and {config.storage.root} does not have "
            "its marker",
            "one of the two is another site's (etl.ledger, storage.root), the root is not mounted, "
            "or it has lost buckets: `hourmark bucket verify` names those",
        )


def _other_version(older: bool) -> DoctorCheckResult:
    if older:
        return passed_result(
            CHECK,
            "etl.ledger",
            "of an older version; `hourmark etl run` or `hourmark ledger upgrade` migrates it",
        )
    return finding_result(
        CHECK,
        "etl.ledger",
        "the database holds no ledger",
        "`hourmark types apply --dir types` makes it",
    )
