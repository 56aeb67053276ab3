"""Reads from the ledger what a reconciliation compares: one `TypeFacts` per event type.

The number of queries does not depend on the number of types; manifests are read one at a time. All
queries use one connection, so the view is consistent while a driver is running.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict

from sqlalchemy import ColumnElement, Connection, Table, and_, case, func, select

from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import bucket_rows, read_closed_spans
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontier_rows import decode_audit_offsets
from hourmark_etl.ledger.staged.listings import FileDifference, find_file_differences
from hourmark_etl.operators.reconciliation import BucketCounts, PromisedCounts, TypeFacts


@dataclasses.dataclass(frozen=True, slots=True)
class ReconciliationWindow:
    """Event types and hours that a comparison of event counts covers.

    Attributes:
        event_type: Name of the event type; None means all types.
        from_s: Start of the first hour, Unix seconds.
        to_s: Start of the last hour, Unix seconds, inclusive.
    """

    event_type: str | None
    from_s: int
    to_s: int

    def start_conditions(self, table: Table) -> list[ColumnElement[bool]]:
        """Return SQL conditions that select the window's event types from its first hour onwards.

        The window's last hour is not a condition, because later buckets may contain late events of
        the window.

        Args:
            table: A ledger table with the columns `type` and `hour`.

        Returns:
            Conditions to combine with AND.
        """
        of_type = [table.c.type == self.event_type] if self.event_type else []
        return [table.c.hour >= self.from_s, *of_type]


def read_type_facts(
    database: Database, bucket_seconds: int, window: ReconciliationWindow
) -> tuple[list[TypeFacts], list[FileDifference]]:
    """Read all counts about the event types of a window from the ledger, in one transaction.

    Args:
        database: Ledger, which is the state database of the ETL.
        bucket_seconds: Length of a bucket in seconds.
        window: Event types and hours to read.

    Returns:
        A pair of lists, each of which may be empty. The first has the counts of each event type,
        sorted by name. The second has the staged files (copies of Kafka records) of all types whose
        row count differs from the total of their groups in the ledger. A group contains the rows of
        one event type and hour in one file.

    Raises:
        DamagedRow: The ledger row of a bucket is damaged.
        ValueError: The stored manifest of a bucket is invalid.
        Unavailable: The database does not respond.
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
                bucket_seconds=bucket_seconds,
                oldest_open_s=hour_s,
                settled_below=decode_audit_offsets(settled_next, further),
                proof_errors=tuple(json.loads(alarm)) if alarm else (),
                staged_rows=listed[event_type],
                promised=promised[event_type],
                buckets=buckets[event_type],
                set_aside=set_aside[event_type],
            )
            for event_type, hour_s, settled_next, further, alarm in connection.execute(known)
            if window.event_type in (None, event_type)
        ]
        return facts, find_file_differences(connection)


def _listed(
    connection: Connection, window: ReconciliationWindow
) -> dict[str, dict[tuple[int | None, int], int]]:
    # Row counts by type, then by bucket (None: not listed yet) and origin hour.
    groups = tables.groups
    keys = (groups.c.type, groups.c.listed_hour, groups.c.hour)
    found = defaultdict[str, dict[tuple[int | None, int], int]](dict)
    query = (
        select(*keys, func.sum(groups.c.rows))
        .where(*window.start_conditions(groups))
        .group_by(*keys)
    )
    for event_type, listed_s, origin_s, rows in connection.execute(query):
        found[event_type][listed_s, origin_s] = int(rows)
    return found


def _set_aside(connection: Connection) -> dict[str, dict[int | None, int]]:
    # Record counts by type and by the bucket that counts them (None: no bucket yet).
    table = tables.set_aside
    found = defaultdict[str, dict[int | None, int]](dict)
    keys = (table.c.type, table.c.listed_hour)
    for event_type, listed_s, records in connection.execute(
        select(*keys, func.sum(table.c.records)).group_by(*keys)
    ):
        found[event_type][listed_s] = int(records)
    return found


def _promised(
    connection: Connection, window: ReconciliationWindow
) -> dict[str, dict[int, PromisedCounts]]:
    # Only the first site's audit records; `_add_further` adds those of other sites.
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
        .where(
            *window.start_conditions(audits), audits.c.hour <= window.to_s, audits.c.site.is_(None)
        )
        .group_by(audits.c.type, audits.c.hour)
    )
    found = defaultdict[str, dict[int, PromisedCounts]](dict)
    for event_type, origin_s, below, total in connection.execute(query):
        found[event_type][origin_s] = PromisedCounts(int(below), int(total) - int(below))
    return found


def _add_further(
    connection: Connection,
    window: ReconciliationWindow,
    promised: dict[str, dict[int, PromisedCounts]],
) -> None:
    # Row by row, because the ledger stores the offsets of further sites as JSON.
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
        .where(
            *window.start_conditions(audits),
            audits.c.hour <= window.to_s,
            audits.c.site.is_not(None),
        )
    )
    for row in connection.execute(query):
        is_settled = row.hour < row.open_s and row.last_offset < decode_audit_offsets(
            0, row.settled_further
        ).offset_of(row.site)
        known = promised[row.type].get(row.hour, PromisedCounts(0, 0))
        settled, unsettled = (row.promised, 0) if is_settled else (0, row.promised)
        promised[row.type][row.hour] = PromisedCounts(
            known.settled + settled, known.unsettled + unsettled
        )


def _buckets(
    connection: Connection, window: ReconciliationWindow
) -> dict[str, dict[int, BucketCounts]]:
    found = defaultdict[str, dict[int, BucketCounts]](dict)
    for row in bucket_rows(connection, window.event_type, from_s=window.from_s):
        found[row.event_type][row.hour_s] = bucket_counts(
            Manifest.decode(row.manifest.encode()), row.hour_s
        )
    return found


def oldest_bucket_s(database: Database, event_type: str | None) -> int | None:
    """Return the hour of the oldest closed bucket that the ledger contains.

    Args:
        database: Ledger, which is the state database of the ETL.
        event_type: Name of the event type to consider; None considers all types.

    Returns:
        Unix seconds at the start of the hour; None if no bucket is closed.
    """
    with database.reading() as connection:
        spans = read_closed_spans(connection)
    return min(
        (span.first_s for name, span in spans.items() if event_type in (None, name)), default=None
    )


def known_origin_hours(type_facts: TypeFacts, window: ReconciliationWindow) -> set[int]:
    """Return the hours of a window for which the ledger has any counts.

    The ledger is the ETL's state database. Events are counted in the origin hour, which is the hour
    of the event timestamp. An hour is therefore included even if its events are only in a later
    bucket.

    Args:
        type_facts: Counts about one event type from the ledger.
        window: Hours to consider.

    Returns:
        Unix seconds at the start of each hour with events that were copied from Kafka, events that
        audit records state, or a closed bucket; empty if there are none.
    """
    known = (
        {origin_s for _, origin_s in type_facts.staged_rows}
        | {*type_facts.promised}
        | {*type_facts.buckets}
    )
    known |= {origin_s for bucket in type_facts.buckets.values() for origin_s in bucket.late}
    return {origin_s for origin_s in known if window.from_s <= origin_s <= window.to_s}


def bucket_counts(manifest: Manifest, hour_s: int) -> BucketCounts:
    """Extract the event counts from a closed bucket's manifest, to compare them with the ledger.

    Args:
        manifest: Manifest of the bucket, which is the parsed content of its `_SUCCESS` file.
        hour_s: Unix seconds at the start of the bucket's hour.

    Returns:
        The counts, with hours as Unix seconds instead of text.

    Raises:
        ValueError: The manifest contains an invalid hour.
    """
    length_s = manifest.bucket_seconds
    entries = {Hour.parse(label, length_s).start_s: book for label, book in manifest.books.items()}
    return BucketCounts(
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
