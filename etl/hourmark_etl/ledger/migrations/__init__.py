"""Schema migrations of the ledger, with Alembic.

All tables are created and changed by numbered revisions, each applied once, in order, in the
transaction that opens the ledger. A new ledger goes through the same revisions as an old one.
Number 1 was never released. Each revision can be reverted, which `hourmark ledger downgrade` does.
A ledger that is newer than the software is refused.

To change the tables, change `tables.py`, add `versions/v<number>.py` whose `down_revision` is the
previous number, and run tests/unit/etl/ledger/test_ledger_migrations.py, which compares both on
SQLite and PostgreSQL.

Alembic is imported only if tables must be changed, because importing it takes as long as everything
else in this package.
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
    """Return the newest schema version of the ledger, which this software writes.

    The ledger is the state database of the ETL. The version is also the highest one that this
    software can open.
    """
    return max(int(file.stem.removeprefix("v")) for file in (_FOLDER / "versions").glob("v*.py"))


def is_current(connection: Connection) -> bool:
    """Return whether the ledger has the newest schema version, so that no migration is needed.

    The ledger is the state database of the ETL.

    Args:
        connection: A connection to the ledger.

    Returns:
        False if the ledger has an older version that can be migrated, or no version yet.

    Raises:
        EtlStop: The ledger cannot be migrated: its version is 1, or newer than the software.
    """
    version = read_revision(connection)
    if version is None and inspect(connection).has_table("meta"):
        raise EtlStop(
            "the ledger has schema version 1, which was never released, and cannot be migrated; "
            "set etl.ledger to a new database, and fill it from storage with `hourmark ledger "
            "rebuild`"
        )
    if version is not None and version > newest():
        raise EtlStop(
            f"the ledger has schema version {version}, but this version of Hourmark supports at "
            f"most {newest()}; use the version that wrote it, or a newer one"
        )
    return version == newest()


def upgrade(connection: Connection) -> None:
    """Create the tables of an empty ledger, or migrate them to the newest schema version.

    Args:
        connection: A connection in a transaction that has locked the ledger; see
            `lock_for_migration`.

    Raises:
        EtlStop: The ledger cannot be migrated: its version is 1, or newer than the software.
    """
    if is_current(connection):  # another process has migrated it
        return
    before = read_revision(connection)
    from alembic import command

    with _LOCK:
        command.upgrade(_on(connection), "head")
    if before is not None:
        _LOG.info("the ledger was migrated from schema version %d to %d", before, newest())


def downgrade(connection: Connection, revision: int) -> None:
    """Migrate the tables down to an older schema version.

    Tables and columns that do not exist in the older version are dropped with their content.

    Args:
        connection: A connection in a transaction that has locked the ledger; see
            `lock_for_migration`.
        revision: The target schema version.
    """
    from alembic import command

    with _LOCK:
        command.downgrade(_on(connection), str(revision))


def read_revision(connection: Connection) -> int | None:
    """Return the schema version of the ledger in a database.

    Args:
        connection: A connection to the database.

    Returns:
        The version number; None if the database contains no ledger yet.
    """
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
