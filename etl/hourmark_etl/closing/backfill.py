"""Back-filling: hours before a type's first hour close in turn if they hold something.

While nothing of a type is closed, its frontier is the oldest hour that holds something. Once
something is closed, the frontier only moves forward. It then passes over hours that hold nothing
below a cut: all promises below the cut are staged, so a promise that is staged later lies beyond it
and is a late promise of the next bucket. Skipped hours are therefore proved as exactly as empty
buckets, and cost nothing.
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
    """The hours that event types back-fill.

    Attributes:
        hours: By event type, the hours that a cut allows to back-fill in ascending order, Unix
            seconds. Empty without a cut, and if frontiers were moved.
        has_moved: Whether frontiers were moved, so that they must be read again.
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
    """Move the frontiers of types before their first hour to the next hours that hold something.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        frontiers: Oldest open hour of each type.
        below_offsets: Audit offsets of a cut, below which all audit records are staged. None if
            there is no cut: then only types that have closed nothing are moved.
        ended_ms: By type, the time up to which hours may be skipped, Unix milliseconds. A first
            hour can lie in the future, and events of the hours up to then are still to come.

    Returns:
        The hours that hold something, and whether a frontier was moved.

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
    """Return the hour that a type before its first hour closes next.

    Args:
        frontier: Oldest open hour of the type.
        hours: Hours that hold something and can have a bucket, ascending, Unix seconds.

    Returns:
        The first of `hours`; the type's first hour if there is none.
    """
    return Hour(hours[0], frontier.hour.length_s) if hours else frontier.first_hour
