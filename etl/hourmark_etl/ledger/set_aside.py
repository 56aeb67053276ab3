"""Records of event topics that cannot be in a bucket: which they are, why, and which bucket's
manifest counts them.

A delivery service writes no such record, so another program wrote it, or its bytes changed. What
was acknowledged is missed by the promise of it, and its hour waits: setting a record aside never
makes an hour `proved`. One row holds all records that were found in one piece of a partition for
one reason. It is counted by the next bucket of its type that is sealed.
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
from hourmark_etl.ledger.digests import check, with_digest
from hourmark_etl.model import OffsetSpan, SetAside, to_columns

_TABLE: Final = tables.set_aside
_HOURS_AT_ONCE: Final = 1000
KEPT_MS: Final = 30 * 24 * 3_600_000  # after that, a row that a closed bucket counts is deleted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetAsideRow:
    """A row of the ledger. Times are Unix milliseconds.

    Attributes: listed_hour: The bucket (its hour's start, Unix seconds) whose manifest counts the
        records; None: the next one will. reviewed_at_ms: When an operator marked them as reviewed.
    """

    of: SetAside
    found_at_ms: int
    listed_hour: int | None = None
    reviewed_at_ms: int | None = None

    @property
    def records(self) -> int:
        """How many records."""
        return len(self.of.offsets)


def put_set_aside(
    connection: Connection,
    found: Iterable[SetAside],
    now_ms: int,
    *,
    listed_hour: int | None = None,
) -> list[SetAside]:
    """Add records, less those that are known already. Return what was added.

    Args:
        connection: The transaction that moves on the positions past them, or seals without them.
        found: The records.
        now_ms: Unix milliseconds.
        listed_hour: The bucket that counts them (its hour's start, Unix seconds), if it is known.
    """
    added = []
    for of in found:
        known = _known_offsets(connection, of)
        if left := tuple(offset for offset in of.offsets if offset not in known):
            added.append(dataclasses.replace(of, offsets=left))
            row = _row(added[-1], now_ms) | {"listed_hour": listed_hour, "reviewed_at_ms": None}
            connection.execute(insert(_TABLE).values(with_digest(_TABLE, row)))
    return added


def list_set_aside(connection: Connection, hours_s: Mapping[str, int]) -> None:
    """Let these buckets (type → the hour's start, Unix seconds) count what no bucket counts yet."""
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
    """Return rows by type, topic, partition and offset.

    None: whatever it is. DamagedRow if one is not as it was written.
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
    return [_told(row) for row in database.ask(query).mappings()]


def listed_set_aside(
    database: Database, buckets: Collection[tuple[str, int]]
) -> dict[tuple[str, int], list[SetAside]]:
    """Return the records that these buckets (type, the hour's start in Unix seconds) count."""
    found = defaultdict[tuple[str, int], list[SetAside]](list)
    hours = sorted({hour_s for _, hour_s in buckets})
    for first in range(0, len(hours), _HOURS_AT_ONCE):
        query = select(_TABLE).where(
            _TABLE.c.listed_hour.in_(hours[first : first + _HOURS_AT_ONCE])
        )
        for row in database.ask(
            query.order_by(_TABLE.c.topic, _TABLE.c.partition, _TABLE.c.offset)
        ).mappings():
            if (key := (row["type"], row["listed_hour"])) in buckets:
                found[key].append(_told(row).of)
    return found


def unreviewed_records(database: Database, event_type: str | None = None) -> int:
    """Return how many records of the type, or of all types, were set aside and not reviewed."""
    query = select(func.coalesce(func.sum(_TABLE.c.records), 0)).where(
        _TABLE.c.reviewed_at_ms.is_(None)
    )
    if event_type is not None:
        query = query.where(_TABLE.c.type == event_type)
    return int(database.ask(query).scalar_one())


def set_aside_offsets(database: Database, spans: Sequence[OffsetSpan]) -> set[tuple[str, int, int]]:
    """Return (topic, partition, offset) of records in these spans that were set aside."""
    found = set()
    for s in spans:
        query = select(_TABLE).where(
            _TABLE.c.topic == s.topic,
            _TABLE.c.topic_id == s.topic_id,
            _TABLE.c.partition == s.partition,
            _TABLE.c.offset < s.end,
            _TABLE.c.last_offset >= s.start,
        )
        for row in database.ask(query).mappings():
            found |= {(s.topic, s.partition, offset) for offset in _told(row).of.offsets}
    return found


def mark_reviewed(database: Database, event_type: str | None, now_ms: int) -> int:
    """Mark all rows of the type, or of all types, as reviewed.

    Return how many records that are. UsageError if none.
    """
    open_rows = set_aside_rows(database, event_type, reviewed=False)
    if not open_rows:
        of = f" of {event_type}" if event_type else ""
        raise UsageError(
            f"no record{of} that was set aside waits for a review; `hourmark etl "
            "set-aside ls --all` lists all"
        )
    here: list[ColumnElement[bool]] = [_TABLE.c.reviewed_at_ms.is_(None)]
    if event_type is not None:
        here.append(_TABLE.c.type == event_type)
    with database.transaction() as connection:
        connection.execute(update(_TABLE).where(*here).values(reviewed_at_ms=now_ms))
    return sum(row.records for row in open_rows)


def forget_set_aside(database: Database, lease: Lease, now_ms: int) -> None:
    """Delete rows that a bucket has counted for `KEPT_MS`: its marker has their number, and Kafka
    has long deleted them.
    """
    old = (_TABLE.c.listed_hour.is_not(None), _TABLE.c.found_at_ms < now_ms - KEPT_MS)
    if database.ask(select(_TABLE.c.offset).where(*old).limit(1)).first() is not None:
        with database.transaction(lease) as connection:
            connection.execute(delete(_TABLE).where(*old))


def _known_offsets(connection: Connection, of: SetAside) -> Collection[int]:
    query = select(_TABLE).where(
        _TABLE.c.topic == of.topic,
        _TABLE.c.topic_id == of.topic_id,
        _TABLE.c.partition == of.partition,
        _TABLE.c.offset <= of.offsets[-1],
        _TABLE.c.last_offset >= of.offsets[0],
    )
    return {
        offset for row in connection.execute(query).mappings() for offset in _told(row).of.offsets
    }


def _row(of: SetAside, now_ms: int) -> dict[str, Any]:
    return to_columns(
        of,
        offset=of.offsets[0],
        last_offset=of.offsets[-1],
        records=len(of.offsets),
        offsets=zstandard.compress(json.dumps(of.offsets).encode()),
        found_at_ms=now_ms,
    )


def _told(row: Mapping[Any, Any]) -> SetAsideRow:
    check(_TABLE, row, event_type=row["type"])
    return SetAsideRow(
        of=SetAside(
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
