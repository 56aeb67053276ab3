"""Whether a ledger has done anything: then it is not one that was made in place of a lost one."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, or_, select

from hourmark.errors import UsageError
from hourmark.rules.revision import RulesBook
from hourmark_etl.ledger import tables
from hourmark_etl.model import State

_NOT_ITS_OWN: Final = (
    tables.meta,
    tables.leases,
    tables.schemas,
)  # what starts and `types apply` leave


def refuse_filled(connection: Connection, rules: RulesBook) -> None:
    """UsageError if the ledger has done anything: then it is not one that was made in place of a
    lost one.

    `rules`: those of the topic. What the ledger alone has of them is its own, too.
    """
    f = tables.frontiers.c
    moved = or_(
        f.hour != f.first_hour,
        f.state != State.OPEN.value,
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
