"""What operators and metrics ask of the ledger. Changes nothing; each question is one query, whatever the number of types."""

from __future__ import annotations

import dataclasses

from sqlalchemy import select

from etl.ledger import tables
from etl.ledger.database import Database
from etl.ledger.rows import State
from hourmark.hours import Hour
from hourmark.manifest import Manifest


@dataclasses.dataclass(frozen=True, slots=True)
class SetAside:
    """A type that is not staged for now, because of the record at this place."""

    event_type: str
    topic: str
    partition: int
    offset: int
    reason: str
    set_aside_at_ms: int


def frontier_states(database: Database) -> dict[str, tuple[int, State]]:
    """By type: where its frontier hour begins (Unix seconds), and its state."""
    query = select(tables.frontiers.c.type, tables.frontiers.c.hour, tables.frontiers.c.state)
    with database.reading() as connection:
        return {row[0]: (row[1], State(row[2])) for row in connection.execute(query)}


def set_aside(database: Database) -> dict[str, SetAside]:
    """Types that are set aside."""
    table = tables.set_aside
    query = select(table.c.type, table.c.topic, table.c.partition, table.c.offset, table.c.reason, table.c.set_aside_at_ms)
    with database.reading() as connection:
        return {row[0]: SetAside(*row) for row in connection.execute(query).all()}


def closed_manifest(database: Database, event_type: str, hour: Hour) -> Manifest | None:
    """The manifest of a bucket that the ledger knows as closed."""
    table = tables.buckets
    query = select(table.c.manifest).where(table.c.type == event_type, table.c.hour == hour.start_s)
    with database.reading() as connection:
        found = connection.execute(query).scalar()
    return None if found is None else Manifest.decode(found.encode())
