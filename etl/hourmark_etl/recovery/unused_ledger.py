"""Check that a rebuild does not overwrite a ledger that has been used."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, or_, select

from hourmark.errors import UsageError
from hourmark.rules.revision import RulesBook
from hourmark_etl.ledger import tables
from hourmark_etl.model import HourState

_NOT_ITS_OWN: Final = (
    tables.meta,
    tables.leases,
    tables.schemas,
)  # tables that starts and `types apply` fill


def check_unused(connection: Connection, rules: RulesBook) -> None:
    """Check that a ledger has not been used, so that a rebuild may fill it.

    Args:
        connection: Connection to the ledger.
        rules: The rules revisions that the rules topic contains; other revisions in the ledger
            count as use.

    Raises:
        UsageError: The ledger contains data; nothing was changed.
    """
    f = tables.frontiers.c
    moved = or_(
        f.hour != f.first_hour,
        f.state != HourState.OPEN.value,
        f.settled_next != 0,
        f.settled_further.is_not(None),
        f.seal.is_not(None),
        f.alarm.is_not(None),
    )
    for table in tables.metadata.sorted_tables:
        own = select(table)
        if table is tables.frontiers:
            own = own.where(moved)
        elif table is tables.rules:
            own = own.where(table.c.key.not_in([*rules.records]))
        if table not in _NOT_ITS_OWN and connection.execute(own).first() is not None:
            raise UsageError(
                f"the ledger to fill is not empty (table {table.name}), and nothing of it "
                "was changed: name a new one with --into"
            )
