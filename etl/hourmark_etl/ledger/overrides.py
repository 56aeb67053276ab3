"""Overrides by operators: a type's oldest open hour closes as `forced` although data is missing.

A gap in audit or report topics concerns every type, so it is accepted only by overrides of every
type (`put_overrides`, one transaction). An override of a single type closes that type's hour and
names the gap in the manifest, but the gap stays open. An override is deleted when its hour closes.

A sealed hour accepts no override, because its content is fixed. Exceptions are lost staged files
and rows that cannot be written.

The module also stores what keeps each type's oldest open hour from closing, for
`hourmark bucket why`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import Connection, select

from hourmark.errors import UsageError
from hourmark.records.hours import Hour
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease, delete_rows, replace_rows, select_by_names
from hourmark_etl.model import ClosingPhase, Frontier, HourState, from_columns, from_row, to_columns

_TABLE = tables.overrides
_WAITS = tables.blockers
# In these phases an override closes an hour although its content is fixed.
OVERRIDABLE_SEALED: Final = (ClosingPhase.STAGED, ClosingPhase.UNWRITABLE)
_HOLD_SEALED = (
    ClosingPhase.PUBLISHING,
    ClosingPhase.STAGED,
    ClosingPhase.UNWRITABLE,
    ClosingPhase.LEDGER,
)  # until somebody acts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """An operator's order to close the next bucket of an event type although data is missing.

    Attributes:
        event_type: Name of the event type.
        hour_s: Start of the bucket's hour, Unix seconds.
        reason: Reason given by the operator.
        requested_by: Name of the operator.
        requested_at_ms: Time of the order, Unix milliseconds.
    """

    event_type: str
    hour_s: int
    reason: str
    requested_by: str
    requested_at_ms: int

    @property
    def manifest_text(self) -> str:
        """Return a readable text with the operator and the reason of the override.

        The text is added to the manifest of the bucket.
        """
        return f"forced by {self.requested_by}: {self.reason}"


def overrides(database: Database) -> dict[str, Override]:
    """Return the pending overrides.

    An override is an operator's order to close an hourly bucket although data is missing. Each
    event type has at most one, for its oldest bucket that is not closed.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Overrides by event type; empty if none is pending.
    """
    return {row.type: from_row(Override, row) for row in database.fetch(select(_TABLE))}


def put_override(
    database: Database, event_type: str, hour: Hour, reason: str, operator: str, now_ms: int
) -> None:
    """Store an operator's order to close the next bucket of an event type although data is missing.

    An earlier override of the type is replaced.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Name of the event type.
        hour: The oldest hour of the type whose bucket is not closed.
        reason: Reason for the bucket's manifest; must not be blank.
        operator: Name of the operator.
        now_ms: Current time, Unix milliseconds.

    Raises:
        UsageError: The type is unknown, the hour is not the type's oldest open hour or has not
            ended, or the reason is blank. Nothing was stored.
    """
    _check_reason(reason)
    if hour.end_ms > now_ms:
        raise UsageError(
            f"{event_type} {hour} has not ended; an hour can be forced only after its end"
        )
    with database.transaction() as connection:
        frontier = connection.execute(
            select(tables.frontiers.c.hour).where(tables.frontiers.c.type == event_type)
        ).scalar()
        if frontier is None:
            raise UsageError(
                f"the ledger has no event type {event_type}; `hourmark types list` shows the "
                "declared types"
            )
        if frontier != hour.start_s:
            which = "already closed" if hour.start_s < frontier else "not the next hour to close"
            raise UsageError(
                f"{event_type} {hour} is {which}. Hours close in order, and the next hour of "
                f"{event_type} is {Hour(frontier, hour.length_s)}; force that hour instead"
            )
        _put(connection, {event_type: hour}, reason, operator, now_ms)


def put_overrides(
    database: Database, bucket_seconds: int, reason: str, operator: str, now_ms: int
) -> dict[str, Hour]:
    """Store one override per event type, each for the oldest bucket that is not closed.

    An override is an operator's order to close a bucket although data is missing. Missing audit
    records or host reports concern every type, so only overrides of all types accept their loss.

    Args:
        database: The ledger (the ETL's state database).
        bucket_seconds: Length of a bucket in seconds.
        reason: Reason for the buckets' manifests; must not be blank.
        operator: Name of the operator.
        now_ms: Current time, Unix milliseconds.

    Returns:
        The hour of the bucket to close, by event type.

    Raises:
        UsageError: The reason is blank, a type's hour has not ended, or a type's hour is sealed and
            about to be published, so the override would have no effect. Nothing was stored.
    """
    _check_reason(reason)
    with database.transaction() as connection:
        rows = connection.execute(
            select(tables.frontiers.c.type, tables.frontiers.c.hour, tables.frontiers.c.state)
        ).all()
        ordered = {row.type: Hour(row.hour, bucket_seconds) for row in rows}
        if early := sorted(f"{t} {hour}" for t, hour in ordered.items() if hour.end_ms > now_ms):
            raise UsageError(
                f"the hours of some types have not ended ({', '.join(early[:5])}); repeat the "
                "command after their end"
            )
        held = _WAITS.c.phase.in_(_HOLD_SEALED)
        stuck = {
            (w.type, w.hour)
            for w in connection.execute(select(_WAITS.c.type, _WAITS.c.hour).where(held))
        }
        if soon := [
            r for r in rows if r.state == HourState.SEALED.value and (r.type, r.hour) not in stuck
        ]:
            named = ", ".join(sorted(f"{r.type} {ordered[r.type]}" for r in soon)[:5])
            raise UsageError(
                f"sealed, and about to be published by the driver: {named}; repeat the command "
                "when these hours are closed"
            )
        _put(connection, ordered, reason, operator, now_ms)
    return ordered


def _put(
    connection: Connection, ordered: Mapping[str, Hour], reason: str, by: str, now_ms: int
) -> None:
    common = {"reason": reason, "requested_by": by, "requested_at_ms": now_ms}
    replace_rows(
        connection,
        _TABLE,
        ["type"],
        [{"type": t, "hour": hour.start_s, **common} for t, hour in ordered.items()],
    )


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise UsageError(
            "an override requires a reason, which is stored permanently in the bucket's manifest"
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """The condition that keeps the next hourly bucket of an event type from being closed.

    Attributes:
        event_type: Name of the event type.
        hour: Hour of the bucket, the oldest that is not closed.
        phase: The step of closing that the bucket waits for, such as `reports` (of log sources) or
            `proof`.
        what: Readable causes, each a separate text.
        since_ms: Time since which the bucket has been blocked in this phase, Unix milliseconds.
    """

    event_type: str
    hour: Hour
    phase: ClosingPhase
    what: tuple[str, ...]
    since_ms: int

    def applies_to(self, frontier: Frontier) -> bool:
        """Return whether this stored condition still keeps an hour from being closed.

        The closer does not update stored conditions while it verifies and publishes buckets, which
        may take minutes. A condition from before that time is then out of date.

        Args:
            frontier: The oldest open hour of the event type.

        Returns:
            False if the condition belongs to another hour, or if it concerns a step before the
            verification and the hour is already being verified or published.
        """
        is_passed = frontier.state is not HourState.OPEN and self.phase.is_regular
        return self.hour == frontier.hour and not is_passed


def blockers(
    database: Database, bucket_seconds: int, types: Collection[str] | None = None
) -> dict[str, Blocker]:
    """Return the reason why each event type's next hourly bucket is not closed yet.

    Args:
        database: The ledger (the ETL's state database).
        bucket_seconds: Length of a bucket in seconds.
        types: Names of the event types to read; None reads all.

    Returns:
        Blockers by event type. Types that are not blocked, and types whose row cannot be decoded,
        are omitted.
    """
    names = None if types is None else sorted(set(types))
    with database.reading() as connection:
        rows = [*select_by_names(connection, select(_WAITS), _WAITS.c.type, names)]
    found = {}
    for row in rows:
        with contextlib.suppress(ValueError, TypeError):
            hour, phase, what = (
                Hour(row["hour"], bucket_seconds),
                ClosingPhase(row["phase"]),
                tuple(json.loads(row["what"])),
            )
            found[row["type"]] = from_columns(Blocker, row, hour=hour, phase=phase, what=what)
    return found


def is_override_ineffective(frontier: Frontier, blocker: Blocker | None) -> bool:
    """Return whether an override would have no effect on the next bucket of an event type.

    An override is an operator's order to close a bucket although data is missing. Once a bucket is
    sealed, its content is fixed. An override then has an effect only if the bucket cannot be
    written because of invalid rows or a lost staged file (a copy of Kafka records).

    Args:
        frontier: The oldest open hour of the type.
        blocker: The reason why the bucket is not closed; None if no reason is known.
    """
    gives_up = (
        blocker is not None and blocker.applies_to(frontier) and blocker.phase in OVERRIDABLE_SEALED
    )
    return frontier.state is HourState.SEALED and not gives_up


def check_override_effective(frontier: Frontier, blocker: Blocker | None) -> None:
    """Check that an override would have an effect on the next bucket of an event type.

    An override is an operator's order to close a bucket although data is missing.

    Args:
        frontier: The oldest open hour of the type.
        blocker: The reason why the bucket is not closed; None if no reason is known.

    Raises:
        UsageError: The hour is sealed (its content is fixed), and an override would change nothing.
            The message states what the hour waits for.
    """
    if not is_override_ineffective(frontier, blocker):
        return
    grade = frontier.seal.grade if frontier.seal else "?"
    waits_for = "it is written and published by the driver (`hourmark etl run`)"
    if blocker is not None and blocker.applies_to(frontier):
        waits_for = f"it waits for: ({blocker.phase}) {'; '.join(blocker.what)}"
    raise UsageError(
        f"{frontier.event_type} {frontier.hour} is already sealed as {grade}. Its content is "
        f"fixed, so an override would have no effect, and none was stored; {waits_for}. "
        f"`hourmark bucket why {frontier.event_type} {frontier.hour}` shows the next step"
    )


def put_blockers(
    database: Database, lease: Lease, changed: Collection[Blocker], gone: Collection[str]
) -> None:
    """Update the stored reasons why the next buckets of event types are not closed.

    Changed reasons (blockers) are stored, and those of types that are no longer blocked are
    deleted.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        changed: Blockers to store; each replaces the previous one of its type.
        gone: Event types whose blocker is deleted.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    with database.transaction(lease) as connection:
        replace_rows(
            connection,
            _WAITS,
            ["type"],
            [to_columns(w, hour=w.hour.start_s, what=json.dumps(w.what)) for w in changed],
        )
        delete_rows(connection, _WAITS, ["type"], [{"type": name} for name in gone])
