"""Schema ids, remembered with what they stood for: an id that stands for another schema later stops the ETL."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import insert, select

from etl.errors import SchemaChanged
from etl.ledger import tables
from etl.ledger.database import Database, Lease
from hourmark.avro import Schema, canonical_json, fingerprint


def remembered_schema(database: Database, lease: Lease, schema_id: int, fetch: Callable[[int], Schema]) -> tuple[str, str]:
    """Schema text and fingerprint of an id; asks the registry each time, and SchemaChanged if it now says otherwise."""
    schema = fetch(schema_id)
    now = fingerprint(schema)
    table = tables.schemas
    known = database.ask(select(table.c.schema, table.c.fingerprint).where(table.c.schema_id == schema_id)).one_or_none()
    if known is None:
        with database.transaction(lease) as connection:
            connection.execute(insert(table).values(schema_id=schema_id, fingerprint=now, schema=canonical_json(schema)))
        return canonical_json(schema), now
    if known.fingerprint != now:
        raise SchemaChanged(
            f"schema id {schema_id} stands for another schema now ({now}) than when it was first used ({known.fingerprint}); "
            "is registry.url the right registry, or was it made anew? Events under this id cannot be read until it is restored"
        )
    return str(known.schema), str(known.fingerprint)
