"""Offset gaps, and the mirror's position at the last check of the edge.

The stored position ensures that a gap between two checks is detected.

An offset gap is a set of records that may never be staged. It holds the topic's type, or every type
for audit and report topics, until an override accepts it. The table keeps gaps that only the ledger
knows (skipped offsets, abandoned files) and all accepted gaps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from sqlalchemy import Connection, delete, insert, select

from hourmark.kafka.clients import Partition
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease, replace_rows
from hourmark_etl.model import from_columns

_TABLE = tables.gaps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCheck:
    """The state of an edge partition at its last check for missing records that passed.

    Attributes:
        topic: Topic name at the edge.
        partition: Partition number.
        topic_id: Topic id at the edge.
        mirror_next: Next edge offset that the mirror was to copy.
        checked_at_ms: Time of the check, Unix milliseconds.
    """

    topic: str
    partition: int
    topic_id: str
    mirror_next: int
    checked_at_ms: int


def last_checks(database: Database) -> dict[Partition, EdgeCheck]:
    """Return the last passed check of each partition of the edge clusters."""
    rows = [EdgeCheck(**row) for row in database.fetch(select(tables.edge_checks)).mappings()]
    return {Partition(row.topic, row.partition): row for row in rows}


def record_checks(database: Database, lease: Lease, passed: Collection[EdgeCheck]) -> None:
    """Store passed checks of edge partitions, and replace earlier checks of the same partitions.

    A partition whose check failed keeps its earlier check, so it fails again.

    Raises:
        StaleDriver: The lease was taken over.
    """
    if passed:
        with database.transaction(lease) as connection:
            put_checks(connection, passed)


def replace_topic_checks(connection: Connection, checks: Collection[EdgeCheck]) -> None:
    """Delete all stored checks of the topics in `checks`, and store the given ones.

    Args:
        connection: The transaction.
        checks: Checks of all partitions of their topics.
    """
    connection.execute(
        delete(tables.edge_checks).where(
            tables.edge_checks.c.topic.in_(sorted({c.topic for c in checks}))
        )
    )
    put_checks(connection, checks)


def put_checks(connection: Connection, checks: Collection[EdgeCheck]) -> None:
    """Store checks of edge partitions, and replace earlier checks of the same partitions.

    Args:
        connection: The transaction.
        checks: Checks to store.
    """
    replace_rows(
        connection,
        tables.edge_checks,
        ("topic", "partition"),
        [dataclasses.asdict(c) for c in checks],
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffsetGap:
    """A range of offsets of a topic whose records may never be staged.

    Two gaps with the same text are equal, even if different software versions found them.

    Attributes:
        topic: Topic name at the edge.
        accepted_at_ms: Time at which an override accepted the gap, Unix milliseconds; None if open.
        what: Topic-partition, offsets and cause, human-readable.
        reason: Reason of the override.
        type: The only event type that the gap concerns; None for all types of the topic.
        lost_end: Whether the log lost its end, so that other records may have taken the offsets.
            None in gaps of version 0.3.0, whose text states it; use `has_lost_end`.
    """

    topic: str
    accepted_at_ms: int | None  # None: not accepted yet
    what: str
    reason: str = ""
    type: str | None = None
    lost_end: bool | None = dataclasses.field(default=None, compare=False)


def has_lost_end(gap: OffsetGap) -> bool:
    """Return whether the log lost its end, so that other records may have the gap's offsets.

    Gaps of version 0.3.0 have no such field; their text is used.
    """
    return _lost_end_by_text_of_0_3_0(gap.what) if gap.lost_end is None else gap.lost_end


def _lost_end_by_text_of_0_3_0(what: str) -> bool:
    return what.endswith("and its log lost records before")


def put_gaps(connection: Connection, gaps: Collection[OffsetGap]) -> None:
    """Store offset gaps.

    An accepted gap replaces the same gap; an open gap is added next to an accepted one, because it
    was found since.

    Args:
        connection: The transaction.
        gaps: Gaps to store.
    """
    for gap in sorted(gaps, key=lambda g: g.accepted_at_ms is None):
        same = (_TABLE.c.topic == gap.topic, _TABLE.c.what == gap.what)
        connection.execute(delete(_TABLE).where(*same, _TABLE.c.accepted_at_ms.is_(None)))
        if gap.accepted_at_ms is not None:
            connection.execute(
                delete(_TABLE).where(*same, _TABLE.c.type.is_not_distinct_from(gap.type))
            )
        connection.execute(insert(_TABLE).values(**dataclasses.asdict(gap)))


def open_gaps(database: Database) -> list[OffsetGap]:
    """Return the stored offset gaps that no override has accepted."""
    return [gap for gap in all_gaps(database) if gap.accepted_at_ms is None]


def accepted_gaps(database: Database) -> list[OffsetGap]:
    """Return the gaps that overrides accepted, oldest first."""
    return [gap for gap in all_gaps(database) if gap.accepted_at_ms is not None]


def all_gaps(database: Database) -> list[OffsetGap]:
    """Return all stored offset gaps, open and accepted."""
    query = select(_TABLE).order_by(_TABLE.c.accepted_at_ms, _TABLE.c.id)
    return [from_columns(OffsetGap, row) for row in database.fetch(query).mappings()]
