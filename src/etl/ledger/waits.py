"""What each type's frontier hour waits for, as the closer last saw it: for `hourmark bucket why`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection

from sqlalchemy import bindparam, delete, select

from etl.ledger import tables
from etl.ledger.database import Database, Lease, put
from hourmark.hours import Hour

_TABLE = tables.waits


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
        for row in database.ask(select(_TABLE))
    }


def put_waits(database: Database, lease: Lease, changed: Collection[Wait], gone: Collection[str]) -> None:
    """Replace these types' rows, and remove those of `gone`."""
    with database.transaction(lease) as connection:
        rows = [
            {"type": w.event_type, "hour": w.hour.start_s, "phase": w.phase, "what": json.dumps(w.what), "since_ms": w.since_ms}
            for w in changed
        ]
        put(connection, _TABLE, ("type",), rows)
        if gone:
            connection.execute(delete(_TABLE).where(_TABLE.c.type == bindparam("of_type")), [{"of_type": name} for name in gone])
