"""A frontier row for each type, put with the rules.

Can be repeated; a type's first hour is fixed once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Insert, insert, select

from hourmark.errors import UsageError
from hourmark.records.dead_letters import TYPE as DEAD_LETTERS
from hourmark.records.hours import Hour
from hourmark.rules.event_types import EventType, Source
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import check, rewrite, with_digest
from hourmark_etl.model import FIRST_SITE, NO_AUDIT_OFFSETS, AuditOffsets, HourState

BUCKET_SECONDS: Final = "bucket_seconds"  # in the table `meta`


def put_frontiers(
    connection: Connection, types: Sequence[EventType], sources: Sequence[Source], first_hour: Hour
) -> list[str]:
    """Add rows for new types, renew sources and shard of all; returns the names that were new.

    A source that may carry a type no longer is awaited until its hosts have said goodbye: what they
    read before is on its way. While none of its hosts was ever heard of, their reports may be on
    their way too. UsageError if the ledger's buckets have another length: a root's is fixed.
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
        carried_by = carriers(t.name, sources)
        if row := known.get(t.name):
            check(tables.frontiers, row)
            still = {
                source
                for source in json.loads(row["sources"])
                if source in live or source not in heard
            }
            changed.append(
                (row, {"sources": json.dumps(sorted(carried_by | still)), "shard": t.shard})
            )
        else:
            connection.execute(new_frontier(t.name, first_hour.start_s, t.shard, carried_by))
    rewrite(connection, tables.frontiers, changed)
    return sorted({t.name for t in types} - set(known))


def new_frontier(
    event_type: str,
    first_s: int,
    shard: str,
    sources: Iterable[str],
    hour_s: int | None = None,
    settled_next: AuditOffsets = NO_AUDIT_OFFSETS,
) -> Insert:
    """Adds a row; `hour_s`: the open hour, where it is not the first."""
    row = {
        "type": event_type,
        "first_hour": first_s,
        "hour": first_s if hour_s is None else hour_s,
        "state": HourState.OPEN.value,
        "shard": shard,
        "sources": json.dumps(sorted(sources)),
        "seal": None,
        "alarm": None,
        **settled_columns(settled_next),
    }
    return insert(tables.frontiers).values(**with_digest(tables.frontiers, row))


def settled_columns(settled_next: AuditOffsets) -> dict[str, Any]:
    """As a frontier's row has them."""
    return {
        "settled_next": settled_next.offset_of(FIRST_SITE),
        "settled_further": further_json(settled_next),
    }


def further_json(offsets: AuditOffsets) -> str | None:
    """Of further sites, for a column of its own; None where there are none."""
    return json.dumps(offsets.further_sites) if offsets.further_sites else None


def offsets_of(first: int, further: str | None) -> AuditOffsets:
    """The inverse of both columns together."""
    return AuditOffsets.from_offsets(
        {FIRST_SITE: first, **(json.loads(further) if further else {})}
    )


def check_other_bucket_length(database: Database, bucket_seconds: int) -> None:
    """UsageError if the ledger's buckets have another length than parsing.bucket_seconds
    says now.
    """
    with database.reading() as connection:
        _has_bucket_length(connection, bucket_seconds)


def _has_bucket_length(connection: Connection, bucket_seconds: int) -> bool:
    """Whether it is fixed; UsageError where it is another."""
    known_s = connection.execute(
        select(tables.meta.c.value).where(tables.meta.c.key == BUCKET_SECONDS)
    ).scalar()
    if known_s not in (None, str(bucket_seconds)):
        raise UsageError(
            f"parsing.bucket_seconds is {bucket_seconds}, but the ledger's buckets have "
            f"{known_s} s; set it back"
        )
    return known_s is not None


def carriers(event_type: str, sources: Iterable[Source]) -> set[str]:
    """The sources whose lines may become events of the type; any source's may become dead
    letters.
    """
    if event_type == DEAD_LETTERS:
        return {s.name for s in sources}
    return {s.name for s in sources if event_type in s.types or event_type == s.catch_all}
