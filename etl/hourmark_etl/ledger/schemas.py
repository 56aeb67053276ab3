"""What schema ids stand for.

The rules fix it before the first event is written under an id; no registry is asked later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Result, select

from hourmark.avro.datum_check import event_program
from hourmark.errors import Finding
from hourmark.rules.revision import KnownSchema, check_same_meaning
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, put
from hourmark_etl.ledger.digests import check, with_digest


def known_schemas(database: Database) -> dict[int, KnownSchema]:
    """All that the ledger knows. DamagedRow where one is not as it was written."""
    return _checked(database.ask(select(tables.schemas)))


def schemas_of(database: Database, ids: Collection[int]) -> dict[int, KnownSchema | DamagedRow]:
    """Those of these ids that the ledger knows, each by itself: a damaged row cannot tell whose it
    is.
    """
    query = select(tables.schemas).where(tables.schemas.c.schema_id.in_(sorted(ids)))
    return {row["schema_id"]: _told(row) for row in database.ask(query).mappings()}


class SchemaCheck(NamedTuple):
    """What a schema id stands for, to check records under it: its type, and the program of
    `hourmark.avro.datum_check`.

    A schema that cannot be used has an empty program: its datums are checked when a bucket is
    written, which names it.
    """

    event_type: str
    program: bytes


def add_checks(database: Database, known: dict[int, SchemaCheck]) -> None:
    """Add to `known` the schema ids that it lacks.

    What an id stands for never changes, so each is read once.

    An id whose row is damaged is left out, as it cannot tell its type.
    """
    if new := set(database.ask(select(tables.schemas.c.schema_id)).scalars()) - known.keys():
        for schema_id, schema in schemas_of(database, new).items():
            if isinstance(schema, KnownSchema):
                known[schema_id] = SchemaCheck(schema.event_type, event_program(schema.text))


def unreadable(
    event_type: str, schema_id: int, known: KnownSchema | DamagedRow | None
) -> Finding | None:
    """Why events of the type cannot be put into a bucket under this id, or None."""
    if isinstance(known, DamagedRow):
        return Finding(str(known))
    if known is None or not known.text:
        return Finding(
            f"the ledger knows no schema with the id {schema_id}, under which events of "
            f"{event_type} were written: it may be an "
            "older copy; `hourmark types repair` takes from hourmark.types what it lacks"
        )
    if known.event_type != event_type:
        return Finding(
            f"schema id {schema_id}, under which events of {event_type} were written, stands "
            f"for {known.meaning}; nothing is "
            "written under a schema that is not theirs"
        )
    return None


def put_schemas(connection: Connection, schemas: Iterable[tuple[int, KnownSchema]]) -> None:
    """Add those that are new. ValueError, naming the id, if it stands for something else
    already.
    """
    known = _checked(connection.execute(select(tables.schemas)))
    new: dict[int, KnownSchema] = {}
    for schema_id, schema in schemas:
        standing = new.get(schema_id, known.get(schema_id, schema))
        check_same_meaning(schema_id, standing.meaning, schema.meaning)
        if schema_id not in known or (schema.text and not standing.text):
            new[schema_id] = schema
    rows = [
        {"schema_id": i, "type": s.event_type, "fingerprint": s.fingerprint, "schema": s.text}
        for i, s in new.items()
    ]
    put(
        connection,
        tables.schemas,
        ["schema_id"],
        [with_digest(tables.schemas, row) for row in rows],
    )


def _checked(rows: Result[Any]) -> dict[int, KnownSchema]:
    known = {}
    for row in rows.mappings():
        told = _told(row)
        if isinstance(told, DamagedRow):
            raise told
        known[row["schema_id"]] = told
    return known


def _told(row: Mapping[Any, Any]) -> KnownSchema | DamagedRow:
    try:
        check(tables.schemas, row)
    except DamagedRow as damaged:
        return damaged
    return KnownSchema(row["type"], row["fingerprint"], row["schema"])
