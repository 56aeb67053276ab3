"""Checks the existing ledger and its database. Never creates or migrates a ledger."""

from __future__ import annotations

from collections.abc import Iterator

from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark_declare.doctor.check_result import DoctorCheckResult, finding_result, passed_result
from hourmark_declare.doctor.ledger_evaluation import (
    CHECK,
    RIGHTS,
    SETTINGS,
    VERSION,
    evaluate_postgresql,
    evaluate_privileges,
)
from hourmark_etl.ledger.maintenance.database_status import read_database_status
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger


def check_ledger(config: Config) -> Iterator[DoctorCheckResult]:
    """Check whether the ledger (the ETL's database) is available and has the current version.

    For PostgreSQL, durability settings and privileges are also checked.

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
    with open_existing_ledger(config) as ledger:
        identity, commit = ledger.identity()
        yield passed_result(CHECK, "etl.ledger", f"ledger {identity}, commit {commit}")


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
