"""Offset gaps, which are missing records, and the last successful checks of edge partitions.

A check compares an edge log with the mirror's position. The position is stored, so that the next
check finds records that were deleted between the two.

An offset gap is a range of offsets whose records may never be staged. It keeps the hours of the
topic's event type open until an override accepts it. In topics of audit records or host reports, it
keeps the hours of every type open. The table contains gaps that cannot be found again (skipped
offsets, abandoned files) and all accepted gaps.
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
    """The last successful check of a partition at an edge site for lost records.

    The check compares the edge log with the mirror's position, to find records that were deleted
    before they were copied.

    Attributes:
        topic: Topic name on the edge cluster.
        partition: Partition number.
        topic_id: Kafka topic id on the edge cluster.
        mirror_next: Edge offset that the mirror was going to copy next.
        checked_at_ms: Time of the check, Unix milliseconds.
    """

    topic: str
    partition: int
    topic_id: str
    mirror_next: int
    checked_at_ms: int


def read_last_checks(database: Database) -> dict[Partition, EdgeCheck]:
    """Return the last successful check for lost records of each partition at the edge sites.

    A check compares the start of the edge log with the mirror's position, to find records that were
    deleted before they were copied.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Checks by topic and partition number on the edge cluster; empty if no check has succeeded.
    """
    rows = [EdgeCheck(**row) for row in database.fetch(select(tables.edge_checks)).mappings()]
    return {Partition(row.topic, row.partition): row for row in rows}


def record_checks(database: Database, lease: Lease, passed: Collection[EdgeCheck]) -> None:
    """Store successful checks for lost records, in a new transaction.

    Each check replaces the previous one of its partition. Do not store failed checks. A partition
    whose check fails must keep its last successful check, so that the next check fails again.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        passed: Successful checks; if empty, nothing is changed.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    if passed:
        with database.transaction(lease) as connection:
            put_checks(connection, passed)


def replace_topic_checks(connection: Connection, checks: Collection[EdgeCheck]) -> None:
    """Replace the stored checks for lost records of each topic in `checks`.

    All stored checks of these topics are deleted first, including those of partitions that have no
    entry in `checks`.

    Args:
        connection: The caller's transaction.
        checks: Successful checks, with an entry for every existing partition of their topics.
    """
    connection.execute(
        delete(tables.edge_checks).where(
            tables.edge_checks.c.topic.in_(sorted({c.topic for c in checks}))
        )
    )
    put_checks(connection, checks)


def put_checks(connection: Connection, checks: Collection[EdgeCheck]) -> None:
    """Store successful checks for lost records of edge partitions.

    Each check replaces the previous one of its partition; other partitions keep theirs.

    Args:
        connection: The caller's transaction.
        checks: Checks to store; if empty, nothing is changed.
    """
    replace_rows(
        connection,
        tables.edge_checks,
        ("topic", "partition"),
        [dataclasses.asdict(c) for c in checks],
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffsetGap:
    """A range of Kafka offsets whose records are missing and may never be staged.

    An open gap keeps hourly buckets from being closed until an operator's override accepts it. Gaps
    compare equal if all fields except `lost_end` are equal.

    Attributes:
        topic: Topic name on the edge cluster.
        accepted_at_ms: Time at which an override accepted the gap, Unix milliseconds; None if it is
            open.
        what: Readable text with topic, partition, offsets and cause.
        reason: Reason for the acceptance.
        type: Name of the event type that the gap concerns; None if it concerns all types of the
            topic.
        lost_end: Whether the log lost its end, so that new records may have the same offsets. None
            in gaps of version 0.3.0, which state it in `what`; use `has_lost_end` instead.
    """

    topic: str
    accepted_at_ms: int | None  # None: not accepted yet
    what: str
    reason: str = ""
    type: str | None = None
    lost_end: bool | None = dataclasses.field(default=None, compare=False)


def has_lost_end(gap: OffsetGap) -> bool:
    """Return whether a gap arose because a log lost records at its end.

    An offset gap is a range of Kafka offsets whose records are missing. If its log lost records at
    the end, new records may have the same offsets as the lost ones. Gaps that were written by
    version 0.3.0 do not state this, so it is derived from their text.

    Args:
        gap: The gap.
    """
    return _lost_end_by_text_of_0_3_0(gap.what) if gap.lost_end is None else gap.lost_end


def _lost_end_by_text_of_0_3_0(what: str) -> bool:
    return what.endswith("and its log lost records before")


def put_gaps(connection: Connection, gaps: Collection[OffsetGap]) -> None:
    """Store offset gaps (ranges of missing records) without duplicates.

    A gap replaces the stored open gap with the same topic and text. An accepted gap also replaces
    an earlier acceptance of the same gap for the same event type. An open gap does not replace an
    accepted one, because the loss was detected again after its acceptance.

    Args:
        connection: The caller's transaction.
        gaps: Gaps to store. A gap is accepted by an operator's override; otherwise it is open and
            keeps buckets from being closed.
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
    """Return the stored offset gaps that keep hourly buckets from being closed.

    An offset gap is a range of Kafka offsets whose records are missing. It is open until an
    operator's override accepts it.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        The open gaps; empty if there are none.
    """
    return [gap for gap in all_gaps(database) if gap.accepted_at_ms is None]


def accepted_gaps(database: Database) -> list[OffsetGap]:
    """Return the stored offset gaps that operators have accepted.

    An offset gap is a range of Kafka offsets whose records are missing. An operator accepts a gap
    with an override, which closes a bucket although data is missing. Accepted gaps no longer keep
    hours open.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        The accepted gaps, oldest first; empty if there are none.
    """
    return [gap for gap in all_gaps(database) if gap.accepted_at_ms is not None]


def all_gaps(database: Database) -> list[OffsetGap]:
    """Return all stored offset gaps, open and accepted.

    An offset gap is a range of Kafka offsets whose records are missing. It is open until an
    operator's override accepts it.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        The gaps; empty if there are none.
    """
    query = select(_TABLE).order_by(_TABLE.c.accepted_at_ms, _TABLE.c.id)
    return [from_columns(OffsetGap, row) for row in database.fetch(query).mappings()]
