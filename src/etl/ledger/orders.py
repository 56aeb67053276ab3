"""An operator's orders: a type's frontier hour closes as `forced`, whatever of it could not be verified.

A hole in promises or reports concerns every type, and so it takes an order for every type (`order_force_all`, in one
transaction): only then is such a hole accepted. An order for one type alone closes that type's hour, names the hole and leaves
it standing. The hour's close removes the order.

Beside them, what each type's frontier hour waits for, as the closer last saw it: for `hourmark bucket why`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping

from sqlalchemy import Connection, bindparam, delete, insert, select

from etl.ledger import tables
from etl.ledger.database import Database, Lease, put
from hourmark.errors import UsageError
from hourmark.hours import Hour

_TABLE = tables.orders
_WAITS = tables.waits


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """That a type's frontier hour be closed whatever is missing, in the table's columns. `hour_s`: its start, Unix seconds."""

    event_type: str
    hour_s: int
    reason: str
    ordered_by: str
    ordered_at_ms: int


def orders(database: Database) -> dict[str, Order]:
    """By type; at most one each."""
    return {row.type: Order(*row) for row in database.ask(select(_TABLE))}


def order_force(database: Database, event_type: str, hour: Hour, reason: str, by: str, now_ms: int) -> None:
    """Order it; a second order for the same hour replaces the first.

    UsageError, and nothing ordered, where the hour is not the type's frontier (hours close in turn), has not ended, or no reason
    is given.
    """
    _check_reason(reason)
    if hour.end_ms > now_ms:
        raise UsageError(f"{event_type} {hour} has not ended; an hour can be forced once it has")
    with database.transaction() as connection:
        frontier = connection.execute(select(tables.frontiers.c.hour).where(tables.frontiers.c.type == event_type)).scalar()
        if frontier is None:
            raise UsageError(f"the ledger knows no event type {event_type}; `hourmark types list` names those declared")
        if frontier != hour.start_s:
            which = "closed already" if hour.start_s < frontier else "not next to close"
            raise UsageError(
                f"{event_type} {hour} is {which}: hours close in turn, and the frontier of {event_type} is "
                f"{Hour(frontier, hour.length_s)}; order that one"
            )
        connection.execute(delete(_TABLE).where(_TABLE.c.type == event_type))
        _put(connection, {event_type: hour}, reason, by, now_ms)


def order_force_all(database: Database, bucket_seconds: int, reason: str, by: str, now_ms: int) -> dict[str, Hour]:
    """Order the frontier hour of every type at once: what accepts a hole in promises or reports. Returns what was ordered.

    UsageError, and nothing ordered, where a type's frontier hour has not ended yet: wait for its end, or lose nothing by waiting.
    """
    _check_reason(reason)
    with database.transaction() as connection:
        rows = connection.execute(select(tables.frontiers.c.type, tables.frontiers.c.hour)).all()
        ordered = {row.type: Hour(row.hour, bucket_seconds) for row in rows}
        if early := sorted(f"{t} {hour}" for t, hour in ordered.items() if hour.end_ms > now_ms):
            raise UsageError(f"not every type's hour has ended ({', '.join(early[:5])}); order again once it has")
        connection.execute(delete(_TABLE))
        _put(connection, ordered, reason, by, now_ms)
    return ordered


def _put(connection: Connection, ordered: Mapping[str, Hour], reason: str, by: str, now_ms: int) -> None:
    connection.execute(
        insert(_TABLE),
        [
            {"type": t, "hour": hour.start_s, "reason": reason, "ordered_by": by, "ordered_at_ms": now_ms}
            for t, hour in ordered.items()
        ],
    )


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise UsageError("an order needs a reason: it stands in the bucket's manifest for ever")


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """What one type waits for. `phase`: `etl.why` has a step for each; `since_ms`: since when it is that phase of that hour."""

    event_type: str
    hour: Hour
    phase: str
    what: tuple[str, ...]
    since_ms: int


def waits(database: Database, bucket_seconds: int) -> dict[str, Wait]:
    """By type; a type that waits for nothing but time has none."""
    return {
        row.type: Wait(row.type, Hour(row.hour, bucket_seconds), row.phase, tuple(json.loads(row.what)), row.since_ms)
        for row in database.ask(select(_WAITS))
    }


def put_waits(database: Database, lease: Lease, changed: Collection[Wait], gone: Collection[str]) -> None:
    """Replace these types' rows, and remove those of `gone`."""
    with database.transaction(lease) as connection:
        rows = [
            {"type": w.event_type, "hour": w.hour.start_s, "phase": w.phase, "what": json.dumps(w.what), "since_ms": w.since_ms}
            for w in changed
        ]
        put(connection, _WAITS, ("type",), rows)
        if gone:
            connection.execute(delete(_WAITS).where(_WAITS.c.type == bindparam("of_type")), [{"of_type": name} for name in gone])
