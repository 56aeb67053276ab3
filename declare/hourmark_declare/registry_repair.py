"""Gives a registry that was recreated, or restored from an older copy, the ids that the rules know;
no event changes its id.

Registries give ids in the order of registration, and few let a client choose (Confluent's in its
mode IMPORT does, Apicurio's does not). So schemas are registered in the order of their ids, and
where an id between them was somebody else's, a placeholder takes it. What the registry holds beyond
that is not touched. It must be nobody else's while this runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final, Protocol

from hourmark.avro.framing import NAMESPACE, Schema, fingerprint, plain_spelling
from hourmark.errors import Finding
from hourmark.rules.revision import KnownSchema

PLACEHOLDERS: Final = "hourmark.placeholder"  # begins their subjects


class Registry(Protocol):
    """`hourmark.avro.registry.SchemaRegistry`."""

    def register(self, topic: str, schema: Schema) -> int:
        """The schema's id, given now where it is new."""
        ...

    def find(self, topic: str, schema: Schema) -> int | None:
        """The schema's id, or None where it has none."""
        ...

    def schema(self, schema_id: int) -> Schema | None:
        """The schema of that id, or None."""
        ...


def repair_registry(registry: Registry, known: Mapping[int, KnownSchema]) -> dict[int, KnownSchema]:
    """Register what is missing; what that was.

    Finding, before anything is registered, if an id stands for something else.
    """
    missing = {}
    for schema_id, schema in sorted((n, s) for n, s in known.items() if s.text):
        standing = registry.schema(schema_id)
        if standing is not None and fingerprint(plain_spelling(standing)) != schema.fingerprint:
            raise Finding(
                f"the schema registry says that id {schema_id} stands for "
                f"{standing.get('name')} ({fingerprint(standing)}), the "
                f"ledger knows it as {schema.meaning}: this cannot be mended there. Restore a "
                "copy of the registry, or set "
                "registry.url to an empty one and run this again; nothing was registered"
            )
        if standing is None or registry.find(schema.topic, schema.schema) != schema_id:
            missing[schema_id] = schema
    for schema_id, schema in missing.items():
        if registry.schema(schema_id) is None:
            _fill(registry, schema_id)
        given = registry.register(schema.topic, schema.schema)
        if given != schema_id:
            raise Finding(
                f"the schema registry gave id {given} to {schema.meaning}, which the ledger "
                f"knows as id {schema_id}: it holds "
                "more than the ledger knows. Set registry.url to an empty one, or to a copy of "
                "the lost one, and run this again"
            )
    return missing


def _fill(registry: Registry, schema_id: int) -> None:
    """Take the ids below `schema_id` that nobody has, so that it is given next."""
    given = 0
    while given < schema_id - 1 and registry.schema(schema_id - 1) is None:
        unique = uuid.uuid4().hex
        placeholder = {
            "type": "record",
            "name": f"placeholder_{unique}",
            "namespace": NAMESPACE,
            "fields": [],
        }
        given = registry.register(f"{PLACEHOLDERS}-{unique}", placeholder)
