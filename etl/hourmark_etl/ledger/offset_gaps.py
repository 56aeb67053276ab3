"""Where the mirror stood at the last check of the edge, kept so that a gap between two checks
cannot hide; and such gaps: records that may never be staged, by topic, found at the edge or lost on
the central cluster. An override accepts them.

A gap of a type's topic holds that type, one of promises or reports every type, until an override
accepts it. The table keeps those that nothing but the ledger remembers (offsets that were passed
over, files that were given up), and all that were accepted.
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
    """A partition of the edge at the last check that passed. `mirror_next`: the next edge offset
    the mirror was to copy.
    """

    topic: str
    partition: int
    topic_id: str
    mirror_next: int
    checked_at_ms: int


def last_checks(database: Database) -> dict[Partition, EdgeCheck]:
    """The last check that passed, by partition of the edge."""
    rows = [EdgeCheck(**row) for row in database.fetch(select(tables.edge_checks)).mappings()]
    return {Partition(row.topic, row.partition): row for row in rows}


def record_checks(database: Database, lease: Lease, passed: Collection[EdgeCheck]) -> None:
    """Replace the rows of these partitions; one that failed keeps its old row, so it fails
    again.
    """
    if passed:
        with database.transaction(lease) as connection:
            put_checks(connection, passed)


def replace_topic_checks(connection: Connection, checks: Collection[EdgeCheck]) -> None:
    """Nothing of these topics counts any more but these checks, of all their partitions."""
    connection.execute(
        delete(tables.edge_checks).where(
            tables.edge_checks.c.topic.in_(sorted({c.topic for c in checks}))
        )
    )
    put_checks(connection, checks)


def put_checks(connection: Connection, checks: Collection[EdgeCheck]) -> None:
    """In place of those of the same partitions."""
    replace_rows(
        connection,
        tables.edge_checks,
        ("topic", "partition"),
        [dataclasses.asdict(c) for c in checks],
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffsetGap:
    """Records of a topic (edge name) that may be missing; they concern one type alone where `type`
    names it.

    `lost_end`: whether the log has lost its end, so that other records may have taken these
    offsets. None in gaps of version 0.3.0, whose text says it (`tells_lost_end`). Two gaps with the
    same text are the same, whichever version found them.
    """

    topic: str
    accepted_at_ms: int | None  # None: not accepted yet
    what: str
    reason: str = ""
    type: str | None = None
    lost_end: bool | None = dataclasses.field(default=None, compare=False)


def has_lost_end(gap: OffsetGap) -> bool:
    """Return whether the gap's log has lost its end."""
    return _lost_end_by_text_of_0_3_0(gap.what) if gap.lost_end is None else gap.lost_end


def _lost_end_by_text_of_0_3_0(what: str) -> bool:
    return what.endswith("and its log lost records before")


def put_gaps(connection: Connection, gaps: Collection[OffsetGap]) -> None:
    """Remember them.

    An accepted one takes the place of the same one before; an open one stands beside it: it was
    found since.
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
    """Those that the ledger keeps and no override has accepted."""
    return [gap for gap in all_gaps(database) if gap.accepted_at_ms is None]


def accepted_gaps(database: Database) -> list[OffsetGap]:
    """Offset gaps that overrides accepted, oldest first."""
    return [gap for gap in all_gaps(database) if gap.accepted_at_ms is not None]


def all_gaps(database: Database) -> list[OffsetGap]:
    """Both."""
    query = select(_TABLE).order_by(_TABLE.c.accepted_at_ms, _TABLE.c.id)
    return [from_columns(OffsetGap, row) for row in database.fetch(query).mappings()]
