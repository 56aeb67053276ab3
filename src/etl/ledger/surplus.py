"""Which surplus files there are: rows of closed buckets that a later promise may need (`etl.closing.surplus`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from sqlalchemy import bindparam, delete, select

from etl.ledger import tables
from etl.ledger.database import Database, Lease


@dataclasses.dataclass(frozen=True, slots=True)
class KeptSurplus:
    """Surplus of one bucket. What settles it lies at or past `audit_next`; what the type has settled by now, below `settled_next`
    (central audit offsets)."""

    event_type: str
    hour_s: int
    path: str
    rows: int
    audit_next: int
    sealed_at_ms: int
    settled_next: int


def surplus_files(database: Database) -> list[KeptSurplus]:
    """All of them, oldest bucket first."""
    kept, frontiers = tables.surplus, tables.frontiers
    query = (
        select(*kept.c, frontiers.c.settled_next)
        .join(frontiers, frontiers.c.type == kept.c.type)
        .order_by(kept.c.hour, kept.c.type)
    )
    return [KeptSurplus(*row) for row in database.ask(query)]


def forget_surplus(database: Database, lease: Lease, paths: Collection[str]) -> None:
    """Before the files are deleted: a file that nobody names harms nothing, a missing one would leave a promise unkept."""
    with database.transaction(lease) as connection:
        connection.execute(delete(tables.surplus).where(tables.surplus.c.path == bindparam("of")), [{"of": p} for p in paths])
