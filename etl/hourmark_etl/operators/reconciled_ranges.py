"""Which ranges of an origin hour are not kept: promises in audit files against distinct ids in
staged event files.

The proof's own comparison, asked by an operator; it changes nothing. It reads an hour unit by unit,
so a large one takes time and not memory. Once staged event files are cleaned away (their bucket is
closed and was read back), ranges can be named no longer.
"""

from __future__ import annotations

from typing import Final

from hourmark_etl.closing.proof.evidence import (
    PromisesItem,
    PromiseWindows,
    RowsItem,
    plan_promise_items,
    read_item,
)
from hourmark_etl.closing.proof.promises import UnmetPromise, compare_ranges
from hourmark_etl.closing.units import Listing, plan_units
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.listings import groups_of, promises_between
from hourmark_etl.model import NO_AUDIT_OFFSETS, AuditOffsets
from hourmark_etl.storage import Storage

NAMED_MAX: Final = 20  # all are counted


def unmet_ranges(
    storage: Storage,
    database: Database,
    event_type: str,
    hour_s: int,
    below: AuditOffsets | None,
    staged_rows: int,
    unit_bytes_max: int,
) -> tuple[str, ...] | None:
    """Ranges of this type and origin hour with host, path and bytes, human-readable: those with a
    promise below these central audit offsets (None: with any) that is not kept. () where all are
    kept; None where staged files of its `staged_rows` are cleaned away.

    Unreadable names a file that is damaged.
    """
    groups = groups_of(database, event_type, hour_s)
    if sum(g.rows for g in groups) < staged_rows:
        return None
    units = plan_units([Listing(event_type, hour_s, tuple(groups))], unit_bytes_max)
    audits = promises_between(database, event_type, [hour_s], NO_AUDIT_OFFSETS, below)
    items: list[RowsItem | PromisesItem] = [
        *(RowsItem(unit, (0,), ()) for unit in units),
        *plan_promise_items(audits),
    ]
    windows = PromiseWindows(((0, event_type, hour_s, None),), below)
    found = [read_item(item, storage, windows) for item in items]
    verdict = compare_ranges(
        [f.row_counts for f in found], [f.promised for f in found], [hour_s], NAMED_MAX
    )
    named = tuple(_described(unmet) for unmet in verdict.unmet)
    return (*named, f"and {more} more ranges") if (more := sum(verdict.unnamed.values())) else named


def _described(unmet: UnmetPromise) -> str:
    return (
        f"range {unmet.range_id.hex()} ({unmet.origin}): {unmet.promised} promised, "
        f"{unmet.held} found"
    )
