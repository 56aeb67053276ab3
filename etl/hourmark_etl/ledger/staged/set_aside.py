"""Malformed records of event topics, with the reason and the bucket that counts them.

These records cannot be stored in a bucket. A program other than a delivery service wrote them, or
their bytes changed. If a record was an acknowledged event, its hour waits for the event: setting a
record aside never makes an hour `proved`. One row contains all records of one chunk of a partition
with the same reason. The manifest of the next sealed bucket of the type counts them.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import zstandard
from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, update

from hourmark.errors import UsageError
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.digests import check_digest, with_digest
from hourmark_etl.model import ExcludedRecords, OffsetSpan, to_columns

_TABLE: Final = tables.set_aside
_HOURS_AT_ONCE: Final = 1000
KEPT_MS: Final = 30 * 24 * 3_600_000  # after that, a row that a closed bucket counts is deleted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetAsideRow:
    """A ledger row for Kafka records that no bucket can contain, with their review status.

    Malformed events are an example of such records. The ledger is the state database of the ETL.

    Attributes:
        set_aside: Topic, partition and offsets of the records, and the reason.
        found_at_ms: Time at which they were found, Unix milliseconds.
        listed_hour: Hour of the bucket whose manifest counts the records, Unix seconds; None if no
            bucket counts them yet.
        reviewed_at_ms: Time at which an operator marked them as reviewed, Unix milliseconds; None
            if they are not reviewed.
    """

    set_aside: ExcludedRecords
    found_at_ms: int
    listed_hour: int | None = None
    reviewed_at_ms: int | None = None

    @property
    def record_count(self) -> int:
        """Return the number of Kafka records that the row describes."""
        return len(self.set_aside.offsets)


def put_set_aside(
    connection: Connection,
    records: Iterable[ExcludedRecords],
    now_ms: int,
    *,
    listed_hour: int | None = None,
) -> list[ExcludedRecords]:
    """Store the offsets of Kafka records that no bucket can contain, such as malformed events.

    Records that the ledger (the ETL's state database) already contains are skipped.

    Args:
        connection: The caller's transaction. In the same transaction, the caller must advance the
            staging positions past the records, or fix the content of a bucket without them.
        records: Records to set aside.
        now_ms: Current time, Unix milliseconds.
        listed_hour: Hour of the bucket whose manifest counts the records, Unix seconds; None if it
            is not known yet.

    Returns:
        The records that were not stored before, grouped as given; empty if all were known.
    """
    added = []
    for of in records:
        known = _known_offsets(connection, of)
        if left := tuple(offset for offset in of.offsets if offset not in known):
            added.append(dataclasses.replace(of, offsets=left))
            row = _row(added[-1], now_ms) | {"listed_hour": listed_hour, "reviewed_at_ms": None}
            connection.execute(insert(_TABLE).values(with_digest(_TABLE, row)))
    return added


def assign_set_aside_to_buckets(connection: Connection, hours_s: Mapping[str, int]) -> None:
    """Assign set-aside records to the next bucket of their event type, which will count them.

    Set-aside records are Kafka records that no bucket can contain, such as malformed events.
    Records that are already assigned to a bucket stay assigned to it.

    Args:
        connection: The transaction that seals the buckets, that is, fixes their content.
        hours_s: Hour of the bucket in Unix seconds, by event type.
    """
    if hours_s:
        connection.execute(
            update(_TABLE)
            .where(_TABLE.c.type == bindparam("of_type"), _TABLE.c.listed_hour.is_(None))
            .values(listed_hour=bindparam("hour_s")),
            [{"of_type": event_type, "hour_s": hour_s} for event_type, hour_s in hours_s.items()],
        )


def set_aside_rows(
    database: Database,
    event_type: str | None = None,
    *,
    listed_hour: int | None = None,
    reviewed: bool | None = None,
) -> list[SetAsideRow]:
    """Return records that were set aside because no bucket can contain them.

    All given filters must match; a filter that is None matches every record.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Name of the event type.
        listed_hour: Hour of the bucket whose manifest counts the records, Unix seconds.
        reviewed: True for records that an operator has reviewed, False for all others.

    Returns:
        Rows sorted by type, topic, partition and offset; empty if no record matches.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    query = select(_TABLE).order_by(
        _TABLE.c.type, _TABLE.c.topic, _TABLE.c.partition, _TABLE.c.offset
    )
    if event_type is not None:
        query = query.where(_TABLE.c.type == event_type)
    if listed_hour is not None:
        query = query.where(_TABLE.c.listed_hour == listed_hour)
    if reviewed is not None:
        query = query.where(
            _TABLE.c.reviewed_at_ms.is_not(None) if reviewed else _TABLE.c.reviewed_at_ms.is_(None)
        )
    return [_decode_row(row) for row in database.fetch(query).mappings()]


def find_set_aside_in_buckets(
    database: Database, buckets: Collection[tuple[str, int]]
) -> dict[tuple[str, int], list[ExcludedRecords]]:
    """Return the set-aside records that are counted in the manifests of the given buckets.

    Set-aside records are Kafka records that no bucket can contain, such as malformed events.

    Args:
        database: The ledger (the ETL's state database).
        buckets: Pairs of event type and hour in Unix seconds.

    Returns:
        Records by pairs of event type and hour; buckets without set-aside records are omitted.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    found = defaultdict[tuple[str, int], list[ExcludedRecords]](list)
    hours = sorted({hour_s for _, hour_s in buckets})
    for first in range(0, len(hours), _HOURS_AT_ONCE):
        query = select(_TABLE).where(
            _TABLE.c.listed_hour.in_(hours[first : first + _HOURS_AT_ONCE])
        )
        for row in database.fetch(
            query.order_by(_TABLE.c.topic, _TABLE.c.partition, _TABLE.c.offset)
        ).mappings():
            if (key := (row["type"], row["listed_hour"])) in buckets:
                found[key].append(_decode_row(row).set_aside)
    return found


def count_unreviewed_records(database: Database, event_type: str | None = None) -> int:
    """Return the number of set-aside records that no operator has reviewed.

    Set-aside records are Kafka records that no bucket can contain, such as malformed events.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Name of the event type to count; None counts all types.
    """
    query = select(func.coalesce(func.sum(_TABLE.c.records), 0)).where(
        _TABLE.c.reviewed_at_ms.is_(None)
    )
    if event_type is not None:
        query = query.where(_TABLE.c.type == event_type)
    return int(database.fetch(query).scalar_one())


def find_set_aside_offsets(
    database: Database, spans: Sequence[OffsetSpan]
) -> set[tuple[str, int, int]]:
    """Return the offsets of set-aside records in the given offset ranges.

    Set-aside records are Kafka records that no bucket can contain, such as malformed events.

    Args:
        database: The ledger (the ETL's state database).
        spans: Offset ranges of the central cluster's partitions.

    Returns:
        Tuples of topic, partition and offset; empty if no record was set aside.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    found = set()
    for s in spans:
        query = select(_TABLE).where(
            _TABLE.c.topic == s.topic,
            _TABLE.c.topic_id == s.topic_id,
            _TABLE.c.partition == s.partition,
            _TABLE.c.offset < s.end,
            _TABLE.c.last_offset >= s.start,
        )
        for row in database.fetch(query).mappings():
            found |= {
                (s.topic, s.partition, offset) for offset in _decode_row(row).set_aside.offsets
            }
    return found


def mark_reviewed(database: Database, event_type: str | None, now_ms: int) -> int:
    """Mark all unreviewed set-aside records as reviewed by an operator.

    Set-aside records are Kafka records that no bucket can contain, such as malformed events.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Name of the event type to mark; None marks all types.
        now_ms: Current time, Unix milliseconds.

    Returns:
        The number of records that were marked.

    Raises:
        UsageError: There are no unreviewed records.
    """
    open_rows = set_aside_rows(database, event_type, reviewed=False)
    if not open_rows:
        of = f" of {event_type}" if event_type else ""
        raise UsageError(
            f"no record{of} that was set aside needs a review; `hourmark etl set-aside ls --all` "
            "lists all"
        )
    here: list[ColumnElement[bool]] = [_TABLE.c.reviewed_at_ms.is_(None)]
    if event_type is not None:
        here.append(_TABLE.c.type == event_type)
    with database.transaction() as connection:
        connection.execute(update(_TABLE).where(*here).values(reviewed_at_ms=now_ms))
    return sum(row.record_count for row in open_rows)


def delete_old_set_aside_rows(database: Database, lease: Lease, now_ms: int) -> None:
    """Delete set-aside records that were found more than 30 days ago and are counted by a bucket.

    Set-aside records are Kafka records that no bucket can contain. Records that no bucket counts
    yet are kept.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        now_ms: Current time, Unix milliseconds.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    old = (_TABLE.c.listed_hour.is_not(None), _TABLE.c.found_at_ms < now_ms - KEPT_MS)
    if database.fetch(select(_TABLE.c.offset).where(*old).limit(1)).first() is not None:
        with database.transaction(lease) as connection:
            connection.execute(delete(_TABLE).where(*old))


def _known_offsets(connection: Connection, of: ExcludedRecords) -> Collection[int]:
    query = select(_TABLE).where(
        _TABLE.c.topic == of.topic,
        _TABLE.c.topic_id == of.topic_id,
        _TABLE.c.partition == of.partition,
        _TABLE.c.offset <= of.offsets[-1],
        _TABLE.c.last_offset >= of.offsets[0],
    )
    return {
        offset
        for row in connection.execute(query).mappings()
        for offset in _decode_row(row).set_aside.offsets
    }


def _row(of: ExcludedRecords, now_ms: int) -> dict[str, Any]:
    return to_columns(
        of,
        offset=of.offsets[0],
        last_offset=of.offsets[-1],
        records=len(of.offsets),
        offsets=zstandard.compress(json.dumps(of.offsets).encode()),
        found_at_ms=now_ms,
    )


def _decode_row(row: Mapping[Any, Any]) -> SetAsideRow:
    check_digest(_TABLE, row, event_type=row["type"])
    return SetAsideRow(
        set_aside=ExcludedRecords(
            topic=row["topic"],
            topic_id=row["topic_id"],
            partition=row["partition"],
            event_type=row["type"],
            reason=row["reason"],
            offsets=tuple(json.loads(zstandard.decompress(row["offsets"]))),
        ),
        found_at_ms=row["found_at_ms"],
        listed_hour=row["listed_hour"],
        reviewed_at_ms=row["reviewed_at_ms"],
    )
