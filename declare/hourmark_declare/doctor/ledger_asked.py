"""Opens the ledger that there is, and reads. Makes none, and migrates none."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError

from hourmark.config import Config
from hourmark_declare.doctor.finding import Answer, finding, well
from hourmark_declare.doctor.ledger_judged import CHECK, SETTINGS, postgresql_judged
from hourmark_etl.ledger import migrations
from hourmark_etl.ledger.engines import open_engine, sqlite_file
from hourmark_etl.ledger.existing import existing_ledger


def ask(config: Config) -> Iterator[Answer]:
    """Whether there is a ledger, it answers, and nothing says that it is lost; of PostgreSQL, how it keeps what it commits."""
    file = sqlite_file(config.etl.ledger)
    if file is None or file.is_file():
        changing, reading = open_engine(config.etl.ledger)
        try:
            with reading.connect() as connection, connection.begin():
                if file is None:
                    settings = {name: str(connection.execute(text(f"SHOW {name}")).scalar()) for name in SETTINGS}
                    yield from postgresql_judged(settings)
                if not migrations.is_current(connection):
                    yield _other_version(inspect(connection).has_table("alembic_version"))
                    return
        except DBAPIError as error:
            yield finding(
                CHECK, "etl.ledger", f"it cannot be read: {' '.join(str(error.orig).split())}",
                "check that its server runs and this user may connect, or, for a file, path and rights; a damaged one: restore "
                "the newest copy, or `hourmark ledger rebuild`",
            )  # fmt: skip
            return
        finally:
            changing.dispose()
    with existing_ledger(config) as ledger:
        identity, commit = ledger.identity()
        yield well(CHECK, "etl.ledger", f"ledger {identity}, commit {commit}")


def _other_version(older: bool) -> Answer:
    if older:
        return well(CHECK, "etl.ledger", "of an older version; the next command that uses it migrates it")
    return finding(CHECK, "etl.ledger", "the database holds no ledger", "`hourmark types apply --dir types` makes it")
