"""What `hourmark types apply` does here: a frontier row for each type. Can be repeated; a type's first hour is fixed once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, insert, select, update

from etl.ledger import tables
from etl.ledger.database import Database
from hourmark.config import Config
from hourmark.dead_letters import TYPE as DEAD_LETTERS
from hourmark.errors import UsageError
from hourmark.event_types import EventType, Source
from hourmark.hours import Hour

BUCKET_SECONDS: Final = "bucket_seconds"  # in the table `meta`


def ensure_frontier_rows(config: Config, types: Sequence[EventType], sources: Sequence[Source], first_hour: Hour) -> list[str]:
    """Add rows for new types, renew sources and shard of all; returns the names that were new.

    A source that may carry a type no longer is awaited until its hosts have said goodbye: what they read before is on its way.
    UsageError if the ledger's buckets have another length: a root's is fixed.
    """
    database = Database(config.etl.ledger)
    try:
        with database.transaction() as connection:
            _fix_bucket_length(connection, first_hour.length_s)
            known: dict[str, str] = dict(connection.execute(select(tables.frontiers.c.type, tables.frontiers.c.sources)).all())
            live = set(connection.execute(select(tables.reporters.c.source).where(~tables.reporters.c.goodbye)).scalars())
            for t in types:
                still = live & set(json.loads(known.get(t.name, "[]")))
                declared = {"sources": json.dumps(sorted(carriers(t.name, sources) | still)), "shard": t.shard}
                if t.name in known:
                    connection.execute(update(tables.frontiers).where(tables.frontiers.c.type == t.name).values(**declared))
                else:
                    connection.execute(
                        insert(tables.frontiers).values(
                            type=t.name, first_hour=first_hour.start_s, hour=first_hour.start_s, state="open", settled_next=0,
                            **declared,
                        )
                    )  # fmt: skip
        return sorted({t.name for t in types} - set(known))
    finally:
        database.close()


def refuse_other_bucket_length(database: Database, bucket_seconds: int) -> None:
    """UsageError if the ledger's buckets have another length than parsing.bucket_seconds says now."""
    with database.reading() as connection:
        length = _bucket_length(connection)
    if length is not None and length != bucket_seconds:
        raise _other_length(bucket_seconds, length)


def _fix_bucket_length(connection: Connection, bucket_seconds: int) -> None:
    length = _bucket_length(connection)
    if length is None:
        connection.execute(insert(tables.meta).values(key=BUCKET_SECONDS, value=str(bucket_seconds)))
    elif length != bucket_seconds:
        raise _other_length(bucket_seconds, length)


def _bucket_length(connection: Connection) -> int | None:
    value = connection.execute(select(tables.meta.c.value).where(tables.meta.c.key == BUCKET_SECONDS)).scalar()
    return None if value is None else int(value)


def _other_length(wanted_s: int, known_s: int) -> UsageError:
    return UsageError(f"parsing.bucket_seconds is {wanted_s}, but the ledger's buckets have {known_s} s; set it back")


def carriers(event_type: str, sources: Iterable[Source]) -> set[str]:
    """The sources whose lines may become events of the type; any source's may become dead letters."""
    if event_type == DEAD_LETTERS:
        return {s.name for s in sources}
    return {s.name for s in sources if event_type in s.types or event_type == s.catch_all}
