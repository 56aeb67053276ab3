"""Reads the ledger into what the books compute on: one `TypeFacts` a type.

A few queries whatever the number of types; manifests are read one after another. All go to one
connection, which gives a consistent view while a driver goes on.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict

from sqlalchemy import ColumnElement, Connection, Table, and_, case, func, select

from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import bucket_rows, closed_spans
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontier_rows import offsets_of
from hourmark_etl.ledger.listings import FileDifference, file_differences
from hourmark_etl.operators.reconciliation import BucketFacts, Promised, TypeFacts


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Which books: of one type (None: all), of origin hours that begin in [from_s, to_s], Unix
    seconds.
    """

    event_type: str | None
    from_s: int
    to_s: int

    def begins(self, table: Table) -> list[ColumnElement[bool]]:
        """What rows of the window have in common.

        Of buckets no end: a later one may hold late events of its hours.
        """
        of_type = [table.c.type == self.event_type] if self.event_type else []
        return [table.c.hour >= self.from_s, *of_type]


def facts_of(
    database: Database, length_s: int, window: Window
) -> tuple[list[TypeFacts], list[FileDifference]]:
    """Of each type of the window, by name; and staged files that the ledger's groups do not add up
    to. One consistent view.
    """
    frontiers = tables.frontiers
    known = select(
        frontiers.c.type,
        frontiers.c.hour,
        frontiers.c.settled_next,
        frontiers.c.settled_further,
        frontiers.c.alarm,
    ).order_by(frontiers.c.type)
    with database.reading() as connection:
        listed, promised, buckets = (
            _listed(connection, window),
            _promised(connection, window),
            _buckets(connection, window),
        )
        _add_further(connection, window, promised)
        set_aside = _set_aside(connection)
        facts = [
            TypeFacts(
                event_type=event_type,
                length_s=length_s,
                frontier_s=hour_s,
                settled_next=offsets_of(settled_next, further),
                alarm=tuple(json.loads(alarm)) if alarm else (),
                listed=listed[event_type],
                promised=promised[event_type],
                buckets=buckets[event_type],
                set_aside=set_aside[event_type],
            )
            for event_type, hour_s, settled_next, further, alarm in connection.execute(known)
            if window.event_type in (None, event_type)
        ]
        return facts, file_differences(connection)


def _listed(connection: Connection, window: Window) -> dict[str, dict[tuple[int | None, int], int]]:
    """Rows by type, then by the bucket that they are listed for (None: for none yet) and by origin
    hour.
    """
    groups = tables.groups
    keys = (groups.c.type, groups.c.listed_hour, groups.c.hour)
    found = defaultdict[str, dict[tuple[int | None, int], int]](dict)
    query = select(*keys, func.sum(groups.c.rows)).where(*window.begins(groups)).group_by(*keys)
    for event_type, listed_s, origin_s, rows in connection.execute(query):
        found[event_type][listed_s, origin_s] = int(rows)
    return found


def _set_aside(connection: Connection) -> dict[str, dict[int | None, int]]:
    """Records that were set aside, by type and by the bucket that counts them (None: none yet)."""
    table = tables.set_aside
    found = defaultdict[str, dict[int | None, int]](dict)
    keys = (table.c.type, table.c.listed_hour)
    for event_type, listed_s, records in connection.execute(
        select(*keys, func.sum(table.c.records)).group_by(*keys)
    ):
        found[event_type][listed_s] = int(records)
    return found


def _promised(connection: Connection, window: Window) -> dict[str, dict[int, Promised]]:
    """By type and origin hour, of the first site's audit records that the ledger still knows;
    settled by the type's last bucket, or not.
    """
    audits, frontiers = tables.audit_groups, tables.frontiers
    settled = and_(
        audits.c.hour < frontiers.c.hour, audits.c.last_offset < frontiers.c.settled_next
    )
    query = (
        select(
            audits.c.type,
            audits.c.hour,
            func.sum(case((settled, audits.c.promised), else_=0)),
            func.sum(audits.c.promised),
        )
        .join(frontiers, frontiers.c.type == audits.c.type)
        .where(*window.begins(audits), audits.c.hour <= window.to_s, audits.c.site.is_(None))
        .group_by(audits.c.type, audits.c.hour)
    )
    found = defaultdict[str, dict[int, Promised]](dict)
    for event_type, origin_s, below, total in connection.execute(query):
        found[event_type][origin_s] = Promised(int(below), int(total) - int(below))
    return found


def _add_further(
    connection: Connection, window: Window, promised: dict[str, dict[int, Promised]]
) -> None:
    """The same of further sites, row by row: their offsets stand in JSON."""
    audits, frontiers = tables.audit_groups, tables.frontiers
    query = (
        select(
            audits.c.type,
            audits.c.hour,
            audits.c.site,
            audits.c.last_offset,
            audits.c.promised,
            frontiers.c.hour.label("open_s"),
            frontiers.c.settled_further,
        )
        .join(frontiers, frontiers.c.type == audits.c.type)
        .where(*window.begins(audits), audits.c.hour <= window.to_s, audits.c.site.is_not(None))
    )
    for row in connection.execute(query):
        is_settled = row.hour < row.open_s and row.last_offset < offsets_of(
            0, row.settled_further
        ).offset_of(row.site)
        known = promised[row.type].get(row.hour, Promised(0, 0))
        settled, unsettled = (row.promised, 0) if is_settled else (0, row.promised)
        promised[row.type][row.hour] = Promised(
            known.settled + settled, known.unsettled + unsettled
        )


def _buckets(connection: Connection, window: Window) -> dict[str, dict[int, BucketFacts]]:
    """Closed buckets by type and hour."""
    found = defaultdict[str, dict[int, BucketFacts]](dict)
    for row in bucket_rows(connection, window.event_type, from_s=window.from_s):
        found[row.event_type][row.hour_s] = closed_bucket(
            Manifest.decode(row.manifest.encode()), row.hour_s
        )
    return found


def oldest_bucket_s(database: Database, event_type: str | None) -> int | None:
    """The hour of the oldest closed bucket, of one type or of all; None where nothing is closed."""
    with database.reading() as connection:
        spans = closed_spans(connection)
    return min(
        (span.first_s for name, span in spans.items() if event_type in (None, name)), default=None
    )


def origins_of(facts: TypeFacts, window: Window) -> set[int]:
    """The origin hours of the window of which anything is known."""
    known = {origin_s for _, origin_s in facts.listed} | {*facts.promised} | {*facts.buckets}
    known |= {origin_s for bucket in facts.buckets.values() for origin_s in bucket.late}
    return {origin_s for origin_s in known if window.from_s <= origin_s <= window.to_s}


def closed_bucket(manifest: Manifest, hour_s: int) -> BucketFacts:
    """What reconciliation takes of a manifest."""
    length_s = manifest.bucket_seconds
    entries = {Hour.parse(label, length_s).start_s: book for label, book in manifest.books.items()}
    return BucketFacts(
        hour_s=hour_s,
        grade=manifest.grade,
        events=manifest.events,
        file_records=sum(file.records for file in manifest.files),
        late={Hour.parse(label, length_s).start_s: count for label, count in manifest.late.items()},
        duplicates_removed=manifest.duplicates_removed,
        promised=manifest.evidence.promised,
        unaudited=manifest.unaudited,
        entries=entries,
        set_aside=manifest.set_aside,
        left_out=manifest.left_out,
    )
