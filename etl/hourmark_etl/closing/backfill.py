"""Back-filling: hours before a type's first hour that have events or audit records get buckets.

While nothing of a type is closed, its frontier is the oldest such hour. Once something is closed,
the frontier only moves forward. It then skips hours that have neither events nor audit records
below a cut: all audit records below the cut are staged, so one that is staged later lies beyond it
and is late for the next bucket. Skipped hours are therefore proved as exactly as empty buckets, and
cost nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from hourmark.records.hours import Hour
from hourmark_etl.ledger.backfill import find_hours_to_backfill
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.frontiers import move_open_frontiers
from hourmark_etl.model import AuditOffsets, Frontier, HourState


class BackfillPlan(NamedTuple):
    """Result of `advance_backfill`: the old hours for which buckets may be created.

    A back-fill creates buckets for hours before the first hour of an event type, but only for hours
    that have events or audit records.

    Attributes:
        hours: By event type, the start of each hour whose bucket may be created now, Unix seconds,
            ascending. Empty if no cut was given or if `has_moved` is true.
        has_moved: Whether the next hour to close of any type was changed in the ledger. The caller
            must then read the frontiers again.
    """

    hours: Mapping[str, Sequence[int]]
    has_moved: bool


def advance_backfill(
    database: Database,
    lease: Lease,
    frontiers: Collection[Frontier],
    below_offsets: AuditOffsets | None,
    ended_ms: Mapping[str, int] = {},
) -> BackfillPlan:
    """Move each event type that is back-filled to its next hour with events or audit records.

    A back-fill creates buckets for hours before the first hour of a type. Hours without events and
    audit records get no bucket, so they are skipped.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        frontiers: The next hour to close of each type.
        below_offsets: Audit offsets below which all audit records are staged (copied to storage).
            If None, only types without a closed bucket are moved.
        ended_ms: By type, the time up to which hours may be skipped, Unix milliseconds. Events of
            later hours may still arrive.

    Returns:
        The hours whose buckets may be created, and whether the next hour of any type has changed.

    Raises:
        StaleDriver: Another process has taken over the lease.
    """
    new, begun = list[Frontier](), list[Frontier]()
    for f in frontiers:
        if f.state is HourState.OPEN and f.previous_hour is None:
            new.append(f)
        elif f.state is HourState.OPEN and f.hour < f.first_hour and below_offsets is not None:
            begun.append(f)
    if not new and not begun:
        return BackfillPlan({}, has_moved=False)
    # Nothing of a new type is closed, so its oldest hour counts even if it lies beyond the cut.
    any_hours = find_hours_to_backfill(database, new)
    hours = find_hours_to_backfill(database, begun, below_offsets)
    targets = [(f, next_hour_to_close(f, any_hours.get(f.event_type, ()))) for f in new]
    for f in begun:
        open_hour = Hour.containing(ended_ms[f.event_type], f.hour.length_s)
        target = next_hour_to_close(f, hours.get(f.event_type, ()))
        targets.append((f, max(f.hour, min(target, open_hour))))
    moved = [(f, target) for f, target in targets if target != f.hour]
    if moved:
        move_open_frontiers(database, lease, moved)
        return BackfillPlan({}, has_moved=True)
    if below_offsets is None:
        return BackfillPlan({}, has_moved=False)
    hours |= find_hours_to_backfill(database, new, below_offsets)
    return BackfillPlan(hours, has_moved=False)


def next_hour_to_close(frontier: Frontier, hours: Sequence[int]) -> Hour:
    """Return the next hour to close of an event type that is back-filled.

    A back-fill creates buckets for hours before the first hour of a type.

    Args:
        frontier: The current next hour to close of the type, and its first hour.
        hours: Hours before the first hour for which a bucket can be created, Unix seconds,
            ascending.

    Returns:
        The first of `hours`; the type's first hour if `hours` is empty.
    """
    return Hour(hours[0], frontier.hour.length_s) if hours else frontier.first_hour
