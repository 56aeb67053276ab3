"""What `hourmark types apply` does here: a frontier row for each type. Can be repeated; a type's first hour is fixed once."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import insert, select, update

from etl.ledger import tables
from etl.ledger.database import Database
from hourmark.config import Config
from hourmark.dead_letters import TYPE as DEAD_LETTERS
from hourmark.errors import UsageError
from hourmark.event_types import EventType, Source
from hourmark.hours import Hour


def ensure_frontier_rows(config: Config, types: Sequence[EventType], sources: Sequence[Source], first_hour: Hour) -> list[str]:
    """Add rows for new types, renew sources and shard of all; returns the names that were new.

    UsageError if the ledger's buckets have another length: a root's is fixed.
    """
    database = Database(config.etl.ledger)
    try:
        with database.transaction() as connection:
            length = connection.execute(select(tables.meta.c.value).where(tables.meta.c.key == "bucket_seconds")).scalar()
            if length is None:
                connection.execute(insert(tables.meta).values(key="bucket_seconds", value=str(first_hour.length_s)))
            elif int(length) != first_hour.length_s:
                raise UsageError(
                    f"parsing.bucket_seconds is {first_hour.length_s}, but the ledger's buckets have {length} s; set it back"
                )
            known = set(connection.execute(select(tables.frontiers.c.type)).scalars())
            for t in types:
                declared = {"sources": json.dumps(sorted(_carriers(t.name, sources))), "shard": t.shard}
                if t.name in known:
                    connection.execute(update(tables.frontiers).where(tables.frontiers.c.type == t.name).values(**declared))
                else:
                    connection.execute(
                        insert(tables.frontiers).values(
                            type=t.name, first_hour=first_hour.start_s, hour=first_hour.start_s, state="open", settled_next=0,
                            **declared,
                        )
                    )  # fmt: skip
        return sorted({t.name for t in types} - known)
    finally:
        database.close()


def _carriers(event_type: str, sources: Sequence[Source]) -> set[str]:
    """The sources whose lines may become events of the type; any source's may become dead letters."""
    if event_type == DEAD_LETTERS:
        return {s.name for s in sources}
    return {s.name for s in sources if event_type in s.types or event_type == s.catch_all}
