"""Which ranges of an origin hour are not kept: promises in audit files against distinct ids in staged event files.

The proof's own comparison, asked by an operator; it changes nothing. It reads an hour unit by unit, so a large one takes time and
not memory. Once staged event files are cleaned away (their bucket is closed and was read back), ranges can be named no longer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from etl.closing.promises import PROMISED, ROWS, Unkept, held, judge
from etl.closing.rows import Listing, plan_units, read_unit
from etl.ledger.book_rows import groups_of
from etl.ledger.database import Database
from etl.ledger.listings import promises_between
from etl.ledger.rows import AuditGroup, StagedGroup
from etl.staging.files import AUDIT_SCHEMA, read_all
from etl.storage import Storage
from hourmark.hours import Hour

NAMED_MAX: Final = 20  # all are counted
OFFSET_MAX: Final = (1 << 63) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """Which promises: of this type and origin hour, in audit records below this central offset.

    `staged_rows`: how many rows of it were staged, by the books.
    """

    event_type: str
    hour: Hour
    below: int
    staged_rows: int


def unkept_ranges(storage: Storage, database: Database, asked: Asked, unit_bytes_max: int) -> tuple[str, ...] | None:
    """Ranges with host, path and bytes, for people; () where all promises are kept; None where staged files are cleaned away.

    Unreadable names a file that is damaged.
    """
    hour = asked.hour
    groups = groups_of(database, asked.event_type, hour.start_s)
    if sum(g.rows for g in groups) < asked.staged_rows:
        return None
    audits = promises_between(database, asked.event_type, [hour.start_s], 0, asked.below)
    promised = _promised(storage, audits, asked.below)
    verdict = judge([_held(storage, groups, hour, unit_bytes_max)], [promised], [hour.start_s], NAMED_MAX)
    named = tuple(_described(unkept) for unkept in verdict.unkept)
    return (*named, f"and {more} more ranges") if (more := sum(verdict.unnamed.values())) else named


def _held(storage: Storage, groups: Sequence[StagedGroup], hour: Hour, unit_bytes_max: int) -> pa.Table:
    if not groups:
        return held(ROWS.empty_table())
    listing = Listing(groups[0].event_type, hour.start_s, tuple(groups))
    parts = []
    for unit in plan_units([listing], unit_bytes_max):
        rows = read_unit(unit, storage, ["range_id", "event_id"]).table
        asked = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
        earlier = pa.repeat(pa.scalar(False), rows.num_rows)
        columns = [asked, rows.column("hour"), rows.column("range_id"), rows.column("event_id"), earlier]
        parts.append(held(pa.table(columns, schema=ROWS)))
    return pa.concat_tables(parts)


def _promised(storage: Storage, audits: Sequence[AuditGroup], below: int) -> pa.Table:
    """Promises of the type and hour in these files, as the proof compares them."""
    parts = [PROMISED.empty_table()]
    for path in sorted({a.path for a in audits}):
        rows = read_all(storage, path, AUDIT_SCHEMA.names)
        wanted = pc.and_(pc.equal(rows.column("type"), audits[0].event_type), pc.equal(rows.column("hour"), audits[0].hour_s))
        kept = rows.filter(pc.and_(wanted, pc.less(rows.column("offset"), below)))
        asked = pa.repeat(pa.scalar(0, pa.int32()), kept.num_rows)
        parts.append(pa.table([asked, *(kept.column(name) for name in PROMISED.names[1:])], schema=PROMISED))
    return pa.concat_tables(parts)


def _described(unkept: Unkept) -> str:
    what = "two audit records of it differ" if unkept.differs else f"{unkept.promised} promised, {unkept.held} found"
    return f"range {unkept.range_id.hex()} ({unkept.origin}): {what}"
