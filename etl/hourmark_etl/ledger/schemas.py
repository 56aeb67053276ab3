"""The meaning of schema ids.

The rules fix it before the first event is written under an id; the registry is not queried later.
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
from hourmark_etl.ledger.database import Database, replace_rows
from hourmark_etl.ledger.digests import check_digest, with_digest


def known_schemas(database: Database) -> dict[int, KnownSchema]:
    """Return the event type and the schema of each schema id in the ledger.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Event type and schema by schema id; empty if the ledger has no schemas.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    return _checked(database.fetch(select(tables.schemas)))


def read_schemas_by_id(
    database: Database, ids: Collection[int]
) -> dict[int, KnownSchema | DamagedRow]:
    """Return the event type and the schema of the given schema ids.

    Args:
        database: The ledger (the ETL's state database).
        ids: Schema ids to look up.

    Returns:
        A mapping from schema id to event type and schema, or to the error of the damaged ledger
        row. The errors are not raised. Unknown ids are omitted.
    """
    query = select(tables.schemas).where(tables.schemas.c.schema_id.in_(sorted(ids)))
    return {row["schema_id"]: _checked_row(row) for row in database.fetch(query).mappings()}


class SchemaCheck(NamedTuple):
    """The event type of a schema id, and a compiled check for Avro datums of this schema.

    A datum is an event in Avro binary encoding. The check tells whether a datum is valid without
    decoding it into Python objects.

    Attributes:
        event_type: Event type that the schema belongs to.
        program: The compiled check, a program for `hourmark.avro.datum_check`. Empty if the schema
            cannot be compiled; datums are then checked when a bucket is written.
    """

    event_type: str
    program: bytes


def load_schema_checks(database: Database, checks: dict[int, SchemaCheck]) -> None:
    """Load the compiled check for Avro datums of every schema id that is missing in `checks`.

    Schema ids that `checks` already has are not read again, because the schema of an id never
    changes. Ids whose ledger row is damaged are omitted.

    Args:
        database: The ledger (the ETL's state database).
        checks: Checks by schema id; updated in place.
    """
    if new := set(database.fetch(select(tables.schemas.c.schema_id)).scalars()) - checks.keys():
        for schema_id, schema in read_schemas_by_id(database, new).items():
            if isinstance(schema, KnownSchema):
                checks[schema_id] = SchemaCheck(schema.event_type, event_program(schema.text))


def find_schema_error(
    event_type: str, schema_id: int, known: KnownSchema | DamagedRow | None
) -> Finding | None:
    """Return the reason why events of a type with a given schema id cannot be stored in a bucket.

    Args:
        event_type: Name of the event type.
        schema_id: Schema id of the events.
        known: The ledger's entry for the schema id, the error of its damaged row, or None if the
            ledger (the ETL's state database) does not have the id.

    Returns:
        The reason as an exception, which is not raised; None if the events can be stored.
    """
    if isinstance(known, DamagedRow):
        return Finding(str(known))
    if known is None or not known.text:
        return Finding(
            f"the ledger has no schema with id {schema_id}, with which events of {event_type} "
            "were written: the ledger may be an older copy; `hourmark types repair` copies "
            "missing schemas from hourmark.types"
        )
    if known.event_type != event_type:
        return Finding(
            f"schema id {schema_id}, with which events of {event_type} were written, belongs to "
            f"{known.meaning}; events are not written with a schema of another type"
        )
    return None


def put_schemas(connection: Connection, schemas: Iterable[tuple[int, KnownSchema]]) -> None:
    """Insert the event type and the schema of each schema id that the ledger does not have yet.

    Args:
        connection: The caller's transaction on the ledger (the ETL's state database).
        schemas: Pairs of a schema id and its event type and schema.

    Raises:
        ValueError: The ledger has a different event type or schema for an id. The message names the
            id.
        DamagedRow: The digest of a stored row does not match its content.
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
    replace_rows(
        connection,
        tables.schemas,
        ["schema_id"],
        [with_digest(tables.schemas, row) for row in rows],
    )


def _checked(rows: Result[Any]) -> dict[int, KnownSchema]:
    known = {}
    for row in rows.mappings():
        schema = _checked_row(row)
        if isinstance(schema, DamagedRow):
            raise schema
        known[row["schema_id"]] = schema
    return known


def _checked_row(row: Mapping[Any, Any]) -> KnownSchema | DamagedRow:
    try:
        check_digest(tables.schemas, row)
    except DamagedRow as damaged:
        return damaged
    return KnownSchema(row["type"], row["fingerprint"], row["schema"])
