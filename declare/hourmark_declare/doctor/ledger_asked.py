"""Opens the ledger that there is, and reads. Makes none, and migrates none."""

from __future__ import annotations

from collections.abc import Iterator

from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark_declare.doctor.finding import Answer, finding, well
from hourmark_declare.doctor.ledger_judged import (
    CHECK,
    RIGHTS,
    SETTINGS,
    VERSION,
    postgresql_judged,
    rights_judged,
)
from hourmark_etl.ledger.database_status import read_database_status
from hourmark_etl.ledger.existing import open_existing_ledger


def ask(config: Config) -> Iterator[Answer]:
    """Whether there is a ledger, it answers, and nothing says that it is lost; of PostgreSQL, how
    it keeps what it commits.
    """
    try:
        found = read_database_status(config.etl.ledger, (*SETTINGS, VERSION), RIGHTS)
    except Unavailable as error:
        yield finding(
            CHECK,
            "etl.ledger",
            f"it cannot be read: {error}",
            "check that its server runs and this user may connect, or, for a file, path and "
            "rights; a damaged one: restore "
            "the newest copy, or `hourmark ledger rebuild`",
        )
        return
    if found is not None and found.settings:
        yield from postgresql_judged(found.settings)
        yield from rights_judged(found.answers)
    if found is not None and not found.is_current:
        yield _other_version(found.is_ledger)
        return
    with open_existing_ledger(config) as ledger:
        identity, commit = ledger.identity()
        yield well(CHECK, "etl.ledger", f"ledger {identity}, commit {commit}")


def _other_version(older: bool) -> Answer:
    if older:
        return well(
            CHECK,
            "etl.ledger",
            "of an older version; `hourmark etl run` or `hourmark ledger upgrade` migrates it",
        )
    return finding(
        CHECK,
        "etl.ledger",
        "the database holds no ledger",
        "`hourmark types apply --dir types` makes it",
    )
