"""Finds the byte ranges of an hour whose staged events differ from their audit records.

The comparison is the same as in the proof: promises in audit files against distinct ids in staged
event files. It is read-only. An hour is read in units, so a large hour takes more time but no more
memory. Ranges cannot be named after the staged event files are deleted, which happens when their
bucket is closed and verified.
"""

from __future__ import annotations

from typing import Final

from hourmark_etl.closing.proof.evidence import (
    AuditFilesItem,
    PromiseFilter,
    StagedRowsItem,
    plan_promise_items,
    read_item,
)
from hourmark_etl.closing.proof.promises import UnmetPromise, compare_ranges
from hourmark_etl.closing.units import Listing, plan_units
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.staged.listings import find_audit_groups_between, read_groups_of_hour
from hourmark_etl.model import NO_AUDIT_OFFSETS, AuditOffsets
from hourmark_etl.storage import Storage

NAMED_MAX: Final = 20  # further ranges are only counted


def unmet_ranges(
    storage: Storage,
    database: Database,
    event_type: str,
    hour_s: int,
    below_offsets: AuditOffsets | None,
    staged_rows: int,
    unit_bytes_max: int,
) -> tuple[str, ...] | None:
    """List the byte ranges of log files whose staged events differ from their audit records.

    The audit record of an acknowledged byte range states ("promises") a number of events for each
    type and hour. The function compares this number with the distinct event ids in staged files,
    which contain the events read from Kafka.

    Args:
        storage: Storage with the staged files.
        database: Ledger, which is the state database of the ETL.
        event_type: The event type.
        hour_s: Unix seconds at the start of the hour to which the events belong.
        below_offsets: Exclusive end offsets of the audit topics on the central cluster. Only audit
            records below them are compared; None compares all.
        staged_rows: Total number of rows that were ever staged for the hour. If the existing staged
            files have fewer rows, no comparison is possible.
        unit_bytes_max: Maximum size in bytes of the rows that are in memory at once.

    Returns:
        One human-readable line with host, path and bytes for each range, at most 20, and a last
        line with the number of further ranges. Empty if all promised events are staged. None if
        some of the staged rows are in files that have already been deleted.

    Raises:
        Unreadable: A staged file is missing or damaged.
        Unavailable: The ledger or the storage does not respond.
    """
    groups = read_groups_of_hour(database, event_type, hour_s)
    if sum(g.rows for g in groups) < staged_rows:
        return None
    units = plan_units([Listing(event_type, hour_s, tuple(groups))], unit_bytes_max)
    audits = find_audit_groups_between(
        database, event_type, [hour_s], NO_AUDIT_OFFSETS, below_offsets
    )
    items: list[StagedRowsItem | AuditFilesItem] = [
        *(StagedRowsItem(unit, (0,), ()) for unit in units),
        *plan_promise_items(audits),
    ]
    windows = PromiseFilter(((0, event_type, hour_s, None),), below_offsets)
    found = [read_item(item, storage, windows) for item in items]
    verdict = compare_ranges(
        [f.row_counts for f in found], [f.promised for f in found], [hour_s], NAMED_MAX
    )
    named = tuple(_described(unmet) for unmet in verdict.unmet)
    return (*named, f"and {more} more ranges") if (more := sum(verdict.unnamed.values())) else named


def _described(unmet: UnmetPromise) -> str:
    return (
        f"range {unmet.range_id.hex()} ({unmet.origin}): {unmet.promised} promised, "
        f"{unmet.found} found"
    )
