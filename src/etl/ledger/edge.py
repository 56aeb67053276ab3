"""Where the mirror stood at the last check of the edge, kept so that a hole between two checks cannot hide."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from sqlalchemy import Connection, delete, select

from etl.ledger import tables
from etl.ledger.database import Database, Lease, put
from hourmark.kafka import Partition


@dataclasses.dataclass(frozen=True, slots=True)
class EdgeCheck:
    """A partition of the edge at the last check that passed. `mirror_next`: the next edge offset the mirror was to copy."""

    topic: str
    partition: int
    topic_id: str
    mirror_next: int
    checked_at_ms: int


def last_checks(database: Database) -> dict[Partition, EdgeCheck]:
    """The last check that passed, by partition of the edge."""
    rows = [EdgeCheck(**row) for row in database.ask(select(tables.edge_checks)).mappings()]
    return {Partition(row.topic, row.partition): row for row in rows}


def record_checks(database: Database, lease: Lease, passed: Collection[EdgeCheck]) -> None:
    """Replace the rows of these partitions; one that failed keeps its old row, so it fails again."""
    if passed:
        with database.transaction(lease) as connection:
            _put(connection, passed)


def begin_anew(connection: Connection, checks: Collection[EdgeCheck]) -> None:
    """Nothing of these topics counts any more but these checks, of all their partitions."""
    connection.execute(delete(tables.edge_checks).where(tables.edge_checks.c.topic.in_(sorted({c.topic for c in checks}))))
    _put(connection, checks)


def _put(connection: Connection, checks: Collection[EdgeCheck]) -> None:
    put(connection, tables.edge_checks, ("topic", "partition"), [dataclasses.asdict(c) for c in checks])
