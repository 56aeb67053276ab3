"""Back-filling in the ledger: which hours hold something, and when the oldest one was noticed.

Every hour from a type's first hour on has a bucket. Lines that are older get buckets of their own
hours as long as the type has closed no later one. An hour holds something if staged events of it
are in no bucket, or if audit records promise events of it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from sqlalchemy import func, select

from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease, replace_rows, select_by_names
from hourmark_etl.model import FIRST_SITE, AuditOffsets, Frontier

_EVENTS: Final = tables.groups.c
_PROMISES: Final = tables.audit_groups.c
_NOTICES: Final = "backfill_notices"  # in the table `meta`: hour and time by event type, as JSON


class BackfillNotice(NamedTuple):
    """The time at which the closer detected the oldest hour of an event type's back-fill.

    A back-fill creates buckets for hours before the first hour of a type.

    Attributes:
        hour_s: Start of the oldest hour, Unix seconds.
        noticed_ms: Time of detection by the closer's clock, Unix milliseconds.
    """

    hour_s: int
    noticed_ms: int


def read_backfill_notices(database: Database) -> dict[str, BackfillNotice]:
    """Return the time at which the back-fill of each event type was detected.

    A back-fill creates buckets for hours before the first hour of a type.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Notices by event type; types without a back-fill are missing.
    """
    query = select(tables.meta.c.value).where(tables.meta.c.key == _NOTICES)
    text = database.fetch(query).scalar()
    return {} if text is None else {t: BackfillNotice(*n) for t, n in json.loads(text).items()}


def put_backfill_notices(
    database: Database, lease: Lease, notices: Mapping[str, BackfillNotice]
) -> None:
    """Replace all stored times at which back-fills of event types were detected.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        notices: Notices by event type. Stored notices of other types are deleted.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    rows = [{"key": _NOTICES, "value": json.dumps(notices)}]
    with database.transaction(lease) as connection:
        replace_rows(connection, tables.meta, ["key"], rows)


def find_hours_to_backfill(
    database: Database, frontiers: Collection[Frontier], below_offsets: AuditOffsets | None = None
) -> dict[str, list[int]]:
    """Return the hours before the first hour of each event type for which a bucket can be created.

    These are the hours that have audit records, or staged events (copied from Kafka) that are in no
    bucket. If the type has a closed bucket, hours before its next hour to close are omitted; their
    events are late events.

    Args:
        database: The ledger (the ETL's state database).
        frontiers: The next hour to close of each type.
        below_offsets: End offsets (exclusive) of the audit records to consider; None for all.

    Returns:
        By event type, the start of each hour in Unix seconds, ascending. Types without such an hour
        are missing.

    Raises:
        DamagedRow: A row has an hour at which no bucket begins; restore or rebuild the ledger.
    """
    length_s = {f.event_type: f.hour.length_s for f in frontiers}
    spans = {
        f.event_type: range(0 if f.previous_hour is None else f.hour.start_s, f.first_hour.start_s)
        for f in frontiers
    }
    found = defaultdict[str, set[int]](set)
    for event_type, hour_s, site, first_offset in _read_hours(database, spans):
        is_counted = (
            first_offset is None
            or below_offsets is None
            or first_offset < below_offsets.offset_of(site or FIRST_SITE)
        )
        if hour_s in spans[event_type] and is_counted:
            if hour_s % length_s[event_type]:  # other damage is found when the row is read
                table = tables.groups if first_offset is None else tables.audit_groups
                raise DamagedRow(table.name, f"{event_type}, hour {hour_s}", event_type)
            found[event_type].add(hour_s)
    return {event_type: sorted(hours) for event_type, hours in found.items()}


def _read_hours(
    database: Database, spans: Mapping[str, range]
) -> list[tuple[str, int, str | None, int | None]]:
    # Return type and hour of staged events that are in no bucket, and of promises with their site
    # and first offset.
    last_s = max((span.stop for span in spans.values()), default=0)
    events = (
        select(_EVENTS.type, _EVENTS.hour)
        .where(_EVENTS.listed_hour.is_(None), _EVENTS.hour < last_s)
        .distinct()
    )
    promises = (
        select(
            _PROMISES.type,
            _PROMISES.hour,
            _PROMISES.site,
            func.min(_PROMISES.first_offset).label("first"),
        )
        .where(_PROMISES.hour < last_s)
        .group_by(_PROMISES.type, _PROMISES.hour, _PROMISES.site)
    )
    names = sorted(spans)
    with database.reading() as connection:
        listed = select_by_names(connection, events, _EVENTS.type, names)
        promised = select_by_names(connection, promises, _PROMISES.type, names)
        return [
            *((row["type"], row["hour"], None, None) for row in listed),
            *((row["type"], row["hour"], row["site"], row["first"]) for row in promised),
        ]
