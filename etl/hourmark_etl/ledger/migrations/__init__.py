"""The one way a ledger's tables are made and changed: revisions, each once, in order, in the
transaction that opens the ledger.

A fresh ledger goes through the same revisions as an old one. Revisions are numbered; number 1 was
never released. To change the tables: change `tables.py`, add `versions/v<number>.py` beside the
others with `down_revision` the last one's, and run tests/unit/etl/ledger/test_ledger_migrations.py, which
compares both on SQLite and PostgreSQL. Each revision knows its way back, which `hourmark ledger
downgrade` takes; a ledger newer than the software is refused.

Alembic takes as long to load as all else here, so it is loaded where tables are changed, and not
where they are found current.
"""

from __future__ import annotations

import functools
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, inspect, text

from hourmark_etl.errors import EtlStop

if TYPE_CHECKING:
    from alembic.config import Config

_FOLDER: Final = Path(__file__).parent
_LOCK: Final = threading.Lock()  # Alembic hands revisions their connection in a global
_LOG = logging.getLogger(__name__)
logging.getLogger("alembic").setLevel(logging.WARNING)


@functools.cache
def newest() -> int:
    """The schema version that this software writes."""
    return max(int(file.stem.removeprefix("v")) for file in (_FOLDER / "versions").glob("v*.py"))


def is_current(connection: Connection) -> bool:
    """Whether nothing needs to be done. EtlStop where nothing can be."""
    version = revision_of(connection)
    if version is None and inspect(connection).has_table("meta"):
        raise EtlStop(
            "the ledger has schema version 1, which was never released, and cannot be "
            "migrated; set etl.ledger to a new database "
            "and fill it from storage by `hourmark ledger rebuild`"
        )
    if version is not None and version > newest():
        raise EtlStop(
            f"the ledger has schema version {version}, this software knows {newest()}; run the "
            "software that wrote it, or a "
            "newer one"
        )
    return version == newest()


def upgrade(connection: Connection) -> None:
    """Make the tables, or bring them to the newest version, in the connection's transaction, which
    must be the only one.
    """
    if is_current(connection):  # somebody else was first
        return
    before = revision_of(connection)
    from alembic import command

    with _LOCK:
        command.upgrade(_on(connection), "head")
    if before is not None:
        _LOG.info("the ledger was migrated from schema version %d to %d", before, newest())


def downgrade(connection: Connection, revision: int) -> None:
    """Take the tables back to an older version, in the connection's transaction; what only later
    ones know is dropped.
    """
    from alembic import command

    with _LOCK:
        command.downgrade(_on(connection), str(revision))


def revision_of(connection: Connection) -> int | None:
    """The schema version of the ledger that is there; None where there is none yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.execute(
        text("SELECT version_num FROM alembic_version")
    ).scalar_one_or_none()
    return None if revision is None else int(revision)


def _on(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
