"""Records that may never be staged, by topic: found at the edge, or lost on the central cluster. An order accepts them.

A hole of a type's topic holds that type, one of promises or reports every type, until an order accepts it. The table keeps those
that nothing but the ledger remembers (offsets that were passed over, files that were given up), and all that were accepted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from sqlalchemy import Connection, delete, insert, select

from etl.ledger import tables
from etl.ledger.database import Database

_TABLE = tables.holes


@dataclasses.dataclass(frozen=True, slots=True)
class Hole:
    """Records of a topic (edge name) that may be missing; they concern one type alone where `type` names it."""

    topic: str
    accepted_at_ms: int | None  # None: not accepted yet
    what: str
    reason: str = ""
    type: str | None = None


def put_holes(connection: Connection, holes: Collection[Hole]) -> None:
    """Remember them. An accepted one takes the place of the same one before."""
    for hole in holes:
        connection.execute(
            delete(_TABLE).where(_TABLE.c.topic == hole.topic, _TABLE.c.what == hole.what, _TABLE.c.accepted_at_ms.is_(None))
        )
        connection.execute(insert(_TABLE).values(**dataclasses.asdict(hole)))


def open_holes(database: Database) -> list[Hole]:
    """Those that the ledger keeps and no order has accepted."""
    return [hole for hole in _all(database) if hole.accepted_at_ms is None]


def accepted_holes(database: Database) -> list[Hole]:
    """Holes that orders accepted, oldest first."""
    return [hole for hole in _all(database) if hole.accepted_at_ms is not None]


def _all(database: Database) -> list[Hole]:
    query = select(*(_TABLE.c[f.name] for f in dataclasses.fields(Hole))).order_by(_TABLE.c.accepted_at_ms, _TABLE.c.id)
    return [Hole(*row) for row in database.ask(query)]
