"""An operator's overrides: a type's frontier hour closes as `forced`, whatever of it could not be
verified.

A gap in promises or reports concerns every type, and so it takes an override for every type
(`put_overrides`, in one transaction): only then is such a gap accepted. An override for one type
alone closes that type's hour, names the gap and leaves it standing. The hour's close removes the
order.

A sealed hour takes none: what it holds is fixed. Only what was in a staged file that is lost, and
rows that cannot be written, are given up by an override even then.

Beside them, what each type's frontier hour waits for, as the closer last saw it: for `hourmark
bucket why`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection, Mapping

from sqlalchemy import Connection, select

from hourmark.errors import UsageError
from hourmark.records.hours import Hour
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease, put, remove
from hourmark_etl.model import ClosingPhase, Frontier, HourState, from_columns, from_row, to_columns

_TABLE = tables.overrides
_WAITS = tables.blockers
_HOLD_SEALED = (
    ClosingPhase.PUBLISHING,
    ClosingPhase.STAGED,
    ClosingPhase.UNWRITABLE,
    ClosingPhase.LEDGER,
)  # until somebody acts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """That a type's frontier hour be closed whatever is missing, in the table's columns. `hour_s`:
    its start, Unix seconds.
    """

    event_type: str
    hour_s: int
    reason: str
    requested_by: str
    requested_at_ms: int

    @property
    def said(self) -> str:
        """What the marker of a bucket that it closes says of it."""
        return f"forced by {self.requested_by}: {self.reason}"


def overrides(database: Database) -> dict[str, Override]:
    """By type; at most one each."""
    return {row.type: from_row(Override, row) for row in database.ask(select(_TABLE))}


def put_override(
    database: Database, event_type: str, hour: Hour, reason: str, by: str, now_ms: int
) -> None:
    """Put it; a second override for the same hour replaces the first.

    UsageError, and nothing ordered, where the hour is not the type's frontier (hours close in
    turn), has not ended, or no reason is given.
    """
    _check_reason(reason)
    if hour.end_ms > now_ms:
        raise UsageError(f"{event_type} {hour} has not ended; an hour can be forced once it has")
    with database.transaction() as connection:
        frontier = connection.execute(
            select(tables.frontiers.c.hour).where(tables.frontiers.c.type == event_type)
        ).scalar()
        if frontier is None:
            raise UsageError(
                f"the ledger knows no event type {event_type}; `hourmark types list` "
                "names those declared"
            )
        if frontier != hour.start_s:
            which = "closed already" if hour.start_s < frontier else "not next to close"
            raise UsageError(
                f"{event_type} {hour} is {which}: hours close in turn, and the frontier of "
                f"{event_type} is "
                f"{Hour(frontier, hour.length_s)}; order that one"
            )
        _put(connection, {event_type: hour}, reason, by, now_ms)


def put_overrides(
    database: Database, bucket_seconds: int, reason: str, by: str, now_ms: int
) -> dict[str, Hour]:
    """Put an override for the frontier hour of every type at once: what accepts a gap in promises
    or reports. Returns what was put.

    UsageError, and nothing ordered, where a type's frontier hour has not ended yet: wait for its
    end, or lose nothing by waiting. So where one is sealed and about to be published: its close
    would remove its order before the others are carried out, and they alone accept no gap.
    """
    _check_reason(reason)
    with database.transaction() as connection:
        rows = connection.execute(
            select(tables.frontiers.c.type, tables.frontiers.c.hour, tables.frontiers.c.state)
        ).all()
        ordered = {row.type: Hour(row.hour, bucket_seconds) for row in rows}
        if early := sorted(f"{t} {hour}" for t, hour in ordered.items() if hour.end_ms > now_ms):
            raise UsageError(
                f"not every type's hour has ended ({', '.join(early[:5])}); order again once it has"
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
                f"sealed, and about to be published by the driver: {named}; order again "
                "once that is closed"
            )
        _put(connection, ordered, reason, by, now_ms)
    return ordered


def _put(
    connection: Connection, ordered: Mapping[str, Hour], reason: str, by: str, now_ms: int
) -> None:
    said = {"reason": reason, "requested_by": by, "requested_at_ms": now_ms}
    put(
        connection,
        _TABLE,
        ["type"],
        [{"type": t, "hour": hour.start_s, **said} for t, hour in ordered.items()],
    )


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise UsageError("an override needs a reason: it stands in the bucket's manifest for ever")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """What one type waits for. `phase`: `why` has a step for each; `since_ms`: since when it is
    that phase of that hour.
    """

    event_type: str
    hour: Hour
    phase: ClosingPhase
    what: tuple[str, ...]
    since_ms: int


def blockers(database: Database, bucket_seconds: int) -> dict[str, Blocker]:
    """By type; a type that waits for nothing but time has none.

    A row that is damaged is left out: it is said again.
    """
    told = {}
    for row in database.ask(select(_WAITS)).mappings():
        with contextlib.suppress(ValueError, TypeError):
            hour, phase, what = (
                Hour(row["hour"], bucket_seconds),
                ClosingPhase(row["phase"]),
                tuple(json.loads(row["what"])),
            )
            told[row["type"]] = from_columns(Blocker, row, hour=hour, phase=phase, what=what)
    return told


def changes_nothing(f: Frontier, wait: Blocker | None) -> bool:
    """Whether an override would: the hour is sealed, and waits for nothing that an override gives
    up.
    """
    gives_up = (
        wait is not None
        and wait.hour == f.hour
        and wait.phase in (ClosingPhase.STAGED, ClosingPhase.UNWRITABLE)
    )
    return f.state is HourState.SEALED and not gives_up


def check_sealed(f: Frontier, wait: Blocker | None) -> None:
    """UsageError where an override changes nothing.

    One that an hour has when it is sealed is forgotten with its close.
    """
    if not changes_nothing(f, wait):
        return
    grade = f.seal.grade if f.seal else "?"
    waits_for = "it is written and published by the driver (`hourmark etl run`)"
    if wait is not None and wait.hour == f.hour:
        waits_for = f"it waits for: ({wait.phase}) {'; '.join(wait.what)}"
    raise UsageError(
        f"{f.event_type} {f.hour} is sealed already, as {grade}: what it holds is fixed, an "
        "override would change nothing, and "
        f"no override was stored; {waits_for}. `hourmark bucket why {f.event_type} {f.hour}` "
        "says what to do"
    )


def put_blockers(
    database: Database, lease: Lease, changed: Collection[Blocker], gone: Collection[str]
) -> None:
    """Replace these types' rows, and remove those of `gone`."""
    with database.transaction(lease) as connection:
        put(
            connection,
            _WAITS,
            ["type"],
            [to_columns(w, hour=w.hour.start_s, what=json.dumps(w.what)) for w in changed],
        )
        remove(connection, _WAITS, ["type"], [{"type": name} for name in gone])
