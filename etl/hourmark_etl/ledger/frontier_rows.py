"""The row of each event type, which stores its oldest open hour; it is written with the rules.

Writing a row again has no effect on the hours. The first hour of a type never changes. Hours before
it are back-filled (`ledger.backfill`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import Connection, Insert, insert, select

from hourmark.errors import UsageError
from hourmark.records.dead_letters import TYPE as DEAD_LETTERS
from hourmark.records.hours import Hour
from hourmark.rules.event_types import EventType, Source
from hourmark.rules.revision import Rules
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import check_digest, update_rows, with_digest
from hourmark_etl.model import FIRST_SITE, NO_AUDIT_OFFSETS, AuditOffsets, HourState, Seal

BUCKET_SECONDS: Final = "bucket_seconds"  # in the table `meta`


def put_frontiers(
    connection: Connection, types: Sequence[EventType], sources: Sequence[Source], first_hour: Hour
) -> list[str]:
    """Insert a ledger row for each new event type, and update the rows of known types.

    The row of a type stores its frontier (the oldest hour whose bucket is not closed), its sources
    and its shard (the set of topics that one consumer reads). A source that no longer delivers the
    type is removed only after its hosts have reported and have all signed off, because until then
    its lines may still arrive.

    Args:
        connection: The caller's transaction.
        types: All declared event types.
        sources: All declared sources.
        first_hour: First hour of new types; its length must be the ledger's bucket length.

    Returns:
        The sorted names of the new types.

    Raises:
        UsageError: The ledger's buckets have a different length, which cannot be changed.
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    if not _has_bucket_length(connection, first_hour.length_s):
        connection.execute(
            insert(tables.meta).values(key=BUCKET_SECONDS, value=str(first_hour.length_s))
        )
    known = {row["type"]: row for row in connection.execute(select(tables.frontiers)).mappings()}
    reported = connection.execute(
        select(tables.reporters.c.source, tables.reporters.c.goodbye)
    ).all()
    live, heard = (
        {source for source, goodbye in reported if not goodbye},
        {source for source, _ in reported},
    )
    changed = []
    for t in types:
        carried_by = find_sources_of_type(t.name, sources)
        if row := known.get(t.name):
            check_digest(tables.frontiers, row)
            still = {
                source
                for source in json.loads(row["sources"])
                if source in live or source not in heard
            }
            changed.append(
                (row, {"sources": json.dumps(sorted(carried_by | still)), "shard": t.shard})
            )
        else:
            connection.execute(insert_frontier(t.name, first_hour.start_s, t.shard, carried_by))
    update_rows(connection, tables.frontiers, changed)
    return sorted({t.name for t in types} - set(known))


def insert_frontier(
    event_type: str,
    first_s: int,
    shard: str,
    sources: Iterable[str],
    hour_s: int | None = None,
    settled_next: AuditOffsets = NO_AUDIT_OFFSETS,
    backfilled_s: int | None = None,
) -> Insert:
    """Create the SQL statement that inserts the row of a new event type.

    The row stores the type's frontier, which is the oldest hour whose bucket is not closed. The
    statement is not executed.

    Args:
        event_type: Name of the event type.
        first_s: First hour of the type, Unix seconds. This hour and all later ones have a bucket;
            earlier hours have one only if old events are back-filled.
        shard: Name of the shard (the set of topics that one consumer reads) to which the type
            belongs.
        sources: Names of the sources that may deliver the type.
        hour_s: Oldest open hour, Unix seconds; None for the first hour.
        settled_next: For each site, the audit offset below which all audit records of the type were
            compared with closed buckets.
        backfilled_s: Newest closed hour before `first_s`, Unix seconds; None if there is none.

    Returns:
        The statement, to be executed in the caller's transaction.
    """
    row = {
        "type": event_type,
        "first_hour": first_s,
        "hour": first_s if hour_s is None else hour_s,
        "state": HourState.OPEN.value,
        "shard": shard,
        "sources": json.dumps(sorted(sources)),
        "seal": None,
        "alarm": None,
        "backfilled_hour": backfilled_s,
        **encode_settled_offsets(settled_next),
    }
    return insert(tables.frontiers).values(**with_digest(tables.frontiers, row))


def encode_settled_offsets(settled_next: AuditOffsets) -> dict[str, Any]:
    """Convert audit offsets to column values for the ledger row of an event type.

    An audit record states how many events a delivery service wrote for a byte range of a log file.
    An audit offset is its offset in the Kafka topic of a site (edge cluster).

    Args:
        settled_next: For each site, the audit offset below which all audit records of the type were
            compared with closed buckets.

    Returns:
        The values by column name.
    """
    return {
        "settled_next": settled_next.offset_of(FIRST_SITE),
        "settled_further": encode_further_sites(settled_next),
    }


def encode_further_sites(offsets: AuditOffsets) -> str | None:
    """Encode the audit offsets of all sites except the first as JSON, for a database column.

    An audit offset is a Kafka offset in the topic of a site's audit records. A site is an edge
    cluster.

    Args:
        offsets: Audit offset of each site.

    Returns:
        A JSON object with offsets by site name; None if there is no other site.
    """
    return json.dumps(offsets.further_sites) if offsets.further_sites else None


def decode_audit_offsets(first: int, further: str | None) -> AuditOffsets:
    """Decode the audit offsets of all sites from the two database columns that store them.

    An audit offset is a Kafka offset in the topic of a site's audit records. A site is an edge
    cluster.

    Args:
        first: Offset of the first site.
        further: JSON object with the offsets of the other sites; None if there are none.

    Returns:
        The offset in the audit topic of each site.
    """
    return AuditOffsets.from_offsets(
        {FIRST_SITE: first, **(json.loads(further) if further else {})}
    )


_SEALS: Final = TypeAdapter(tuple[Seal, ...])


def encode_seals(seals: Iterable[Seal]) -> str:
    """Encode seals as a JSON array, for a column of the ledger (the ETL's state database).

    A seal fixes the content of the bucket of one hour before it is published, and contains the
    evidence that it is complete.

    Args:
        seals: Seals of one event type, ordered by hour. The first one belongs to the next hour to
            close.
    """
    return _SEALS.dump_json(tuple(seals)).decode()


def decode_seals(text: str) -> tuple[Seal, ...]:
    """Decode the seals of an event type's next hours, which `encode_seals` encoded.

    A seal fixes the content of one hour's bucket and contains the evidence that it is complete.

    Args:
        text: JSON text from the ledger.

    Returns:
        The seals of consecutive hours, beginning with the oldest open hour of the type.

    Raises:
        ValueError: The text is not JSON of seals.
    """
    return _SEALS.validate_json(text)


def check_bucket_length(database: Database, bucket_seconds: int) -> None:
    """Check that the configured bucket length matches that of the ledger.

    The check passes if the ledger has no bucket length yet.

    Args:
        database: The ledger (the ETL's state database).
        bucket_seconds: Configured length of a bucket in seconds.

    Raises:
        UsageError: The lengths differ; set the configured length to that of the ledger.
    """
    with database.reading() as connection:
        _has_bucket_length(connection, bucket_seconds)


def _has_bucket_length(connection: Connection, bucket_seconds: int) -> bool:
    known_s = connection.execute(
        select(tables.meta.c.value).where(tables.meta.c.key == BUCKET_SECONDS)
    ).scalar()
    if known_s not in (None, str(bucket_seconds)):
        raise UsageError(
            f"parsing.bucket_seconds is {bucket_seconds}, but the ledger's buckets have "
            f"{known_s} s: set it to this value, or use the configuration of the site that this "
            "ledger belongs to"
        )
    return known_s is not None


def find_sources_of_type(event_type: str, sources: Iterable[Source]) -> set[str]:
    """Return the names of the sources that may deliver events of a type.

    Every source may deliver events of the dead-letter type (lines that could not be parsed).

    Args:
        event_type: Name of the event type.
        sources: All declared sources.

    Returns:
        Names of sources; empty if no source delivers the type.
    """
    if event_type == DEAD_LETTERS:
        return {s.name for s in sources}
    return {s.name for s in sources if event_type in s.types or event_type == s.catch_all}


def find_sources_in_revisions(event_type: str, revisions: Iterable[Rules]) -> set[str]:
    """Return the names of the sources that deliver events of a type in any rules revision.

    Former sources are included, because their hosts may still have lines to deliver.

    Args:
        event_type: Name of the event type.
        revisions: Rules revisions, each with all declared types and sources. Revisions without the
            type are ignored.

    Returns:
        Names of sources; empty if no revision contains the type.
    """
    return {
        source
        for rules in revisions
        if event_type in rules.types
        for source in find_sources_of_type(event_type, rules.sources.values())
    }
