"""Read-only queries of operators and metrics: one query each, for any number of types."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection

from sqlalchemy import func, select

from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import (
    bucket_rows,
    make_damaged_bucket_error,
    read_bucket_manifests,
)
from hourmark_etl.ledger.database import Database, select_by_names
from hourmark_etl.model import HourState


@dataclasses.dataclass(frozen=True, slots=True)
class FixedHours:
    """Two boundaries of an event type: the first hour that is not closed, and the first not fixed.

    A bucket is fixed if it accepts no more events. It is closed later, when it has been published,
    so `fixed_to_s` is never before `closed_to_s`. Both are 0 until the first bucket of the type is
    fixed: until then, old events are back-filled, and any hour can still get a bucket.

    Attributes:
        closed_to_s: Start of the first hour whose bucket is not closed, Unix seconds.
        fixed_to_s: Start of the first hour whose bucket still accepts events, Unix seconds.
    """

    closed_to_s: int
    fixed_to_s: int


def read_fixed_hours(database: Database, bucket_seconds: int) -> dict[str, FixedHours]:
    """Return for each event type the first hour that is not closed and the first not fixed.

    A bucket is fixed if it accepts no more events. It is closed later, when it has been published.

    Args:
        database: The ledger (the ETL's state database).
        bucket_seconds: Length of a bucket in seconds.

    Returns:
        One entry per event type; empty if the ledger has no types.
    """
    table = tables.frontiers
    columns = ("type", "first_hour", "hour", "state", "seal", "backfilled_hour")
    found = {}
    for row in database.fetch(select(*(table.c[name] for name in columns))):
        state, has_closed = HourState(row.state), row.backfilled_hour is not None
        if state is HourState.OPEN and row.hour <= row.first_hour and not has_closed:
            found[row.type] = FixedHours(0, 0)
        else:
            found[row.type] = _fixed(row.hour, state, row.seal, bucket_seconds)
    return found


def _fixed(hour_s: int, state: HourState, seals: str | None, bucket_seconds: int) -> FixedHours:
    # A frozen type has listed at least its frontier hour; a sealed one has a seal for each hour
    # that closes next. Seals of version 0.3.0 name no hour: theirs follow each other.
    sealed = json.loads(seals) if seals else ()
    if sealed and (last_s := sealed[-1].get("hour_s")) is not None:
        return FixedHours(hour_s, last_s + bucket_seconds)
    count = 0 if state is HourState.OPEN else len(sealed) or 1
    return FixedHours(hour_s, hour_s + count * bucket_seconds)


def read_oldest_staged_hours(
    database: Database, types: Collection[str] | None = None
) -> dict[str, int]:
    """Return the oldest hour of each event type that has staged events without a bucket.

    Staged events were copied from Kafka to files on storage. The query is fast regardless of their
    number.

    Args:
        database: The ledger (the ETL's state database).
        types: Names of the event types; None reads all.

    Returns:
        Hours by event type, Unix seconds; types without such events are missing.
    """
    staged, of = tables.groups.c, tables.frontiers.c.type
    oldest = (
        select(func.min(staged.hour))
        .where(staged.type == of, staged.listed_hour.is_(None))
        .scalar_subquery()
        .label("hour")
    )
    names = None if types is None else sorted(set(types))
    with database.reading() as connection:
        rows = select_by_names(connection, select(of, oldest), of, names)
        return {row["type"]: row["hour"] for row in rows if row["hour"] is not None}


def read_closed_manifest(database: Database, event_type: str, hour: Hour) -> Manifest | None:
    """Return the ledger's copy of a closed bucket's manifest, which lists its files and totals.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        The manifest; None if the bucket is not closed.

    Raises:
        DamagedRow: The ledger row of the bucket is damaged, or its manifest is invalid.
    """
    marker = read_closed_marker(database, event_type, hour)
    try:
        return None if marker is None else Manifest.decode(marker)
    except ValueError as error:
        raise make_damaged_bucket_error(event_type, hour.start_s) from error


def read_following_manifest(database: Database, event_type: str, hour: Hour) -> Manifest | None:
    """Return the ledger's copy of the manifest of the first closed bucket after an hour.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Event type of the bucket.
        hour: Hour after which to search. The bucket of this hour itself is not returned.

    Returns:
        The manifest; None if no later bucket is closed.

    Raises:
        DamagedRow: The ledger row of the bucket is damaged, or its manifest is invalid.
    """
    with (
        database.reading() as connection,
        contextlib.closing(bucket_rows(connection, event_type, from_s=hour.end_s)) as rows,
    ):
        row = next(rows, None)
    try:
        return None if row is None else Manifest.decode(row.manifest.encode())
    except ValueError as error:
        raise make_damaged_bucket_error(event_type, hour.start_s) from error


def read_closed_marker(database: Database, event_type: str, hour: Hour) -> bytes | None:
    """Return the ledger's copy of a closed bucket's marker, the file `_SUCCESS`.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        The content of the file; None if the bucket is not closed.

    Raises:
        DamagedRow: The ledger row of the bucket is damaged.
    """
    with database.reading() as connection:
        found = read_bucket_manifests(connection, [(event_type, hour.start_s)])
    return found[event_type, hour.start_s].encode() if found else None
