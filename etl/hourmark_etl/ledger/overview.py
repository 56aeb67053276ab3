"""What operators and metrics ask of the ledger.

Changes nothing; each question is one query, whatever the number of types.
"""

from __future__ import annotations

import dataclasses
import json

from sqlalchemy import select

from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import manifests_of
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import HourState


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """Buckets of hours before `closed_to_s` are closed; those before `fixed_to_s` take in nothing
    more. Unix seconds.
    """

    closed_to_s: int
    fixed_to_s: int


def fixed_hours(database: Database, bucket_seconds: int) -> dict[str, Fixed]:
    """By type, which of its buckets take in nothing more."""
    table = tables.frontiers
    query = select(table.c.type, table.c.hour, table.c.state, table.c.seal)
    return {
        row.type: _fixed(row.hour, HourState(row.state), row.seal, bucket_seconds)
        for row in database.ask(query)
    }


def _fixed(hour_s: int, state: HourState, seals: str | None, bucket_seconds: int) -> Fixed:
    """A frozen type has listed its frontier hour at least; a sealed one has a seal for each hour
    that it closes next.
    """
    count = 0 if state is HourState.OPEN else len(json.loads(seals)) if seals else 1
    return Fixed(hour_s, hour_s + count * bucket_seconds)


def closed_manifest(database: Database, event_type: str, hour: Hour) -> Manifest | None:
    """The manifest of a bucket that the ledger knows as closed."""
    marker = closed_marker(database, event_type, hour)
    return None if marker is None else Manifest.decode(marker)


def closed_marker(database: Database, event_type: str, hour: Hour) -> bytes | None:
    """Return the ledger's copy of the `_SUCCESS` of a bucket that it knows as closed."""
    with database.reading() as connection:
        found = manifests_of(connection, [(event_type, hour.start_s)])
    return found[event_type, hour.start_s].encode() if found else None
