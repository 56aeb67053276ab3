"""Restores the schema ids of a registry that was recreated or restored from an older copy.

Events keep their schema ids. Registries assign ids in the order of registration, and few let the
client choose (Confluent's mode IMPORT does, Apicurio does not). Schemas are therefore registered in
the order of their ids, and placeholders fill ids that belonged to other clients. Other schemas in
the registry are not changed. No other client may register schemas meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final, Protocol

from hourmark.avro.framing import NAMESPACE, Schema, fingerprint, plain_spelling
from hourmark.errors import Finding
from hourmark.rules.revision import KnownSchema

PLACEHOLDERS: Final = "hourmark.placeholder"  # prefix of their subjects


class RegistryClient(Protocol):
    """Interface for a schema registry, which stores the Avro schemas of Kafka records by id.

    `hourmark.avro.registry.SchemaRegistry` implements this protocol.
    """

    def register(self, topic: str, schema: Schema) -> int:
        """Register a schema for the values of a topic.

        Args:
            topic: Topic name. The schema is registered under the subject `<topic>-value`.
            schema: Avro record schema.

        Returns:
            The id of the schema. The same schema always gets the same id.

        Raises:
            Unavailable: The registry does not respond.
        """
        ...

    def find(self, topic: str, schema: Schema) -> int | None:
        """Return the id of a schema if it is registered for the values of a topic.

        Args:
            topic: Topic name. The schema is searched for under the subject `<topic>-value`.
            schema: Avro record schema.

        Returns:
            The id of the schema; None if it is not registered under this subject.

        Raises:
            Unavailable: The registry does not respond.
        """
        ...

    def schema(self, schema_id: int) -> Schema | None:
        """Return the schema with a given id.

        Args:
            schema_id: Id that the registry assigned to the schema.

        Returns:
            The schema; None if the registry has no such id.

        Raises:
            Unavailable: The registry does not respond.
        """
        ...


def repair_registry(
    registry: RegistryClient, known: Mapping[int, KnownSchema]
) -> dict[int, KnownSchema]:
    """Register lost schemas again in the schema registry, with their previous ids.

    Registries assign ids in ascending order, so placeholder schemas are registered until a missing
    id is reached. No other client may register schemas at the same time.

    Args:
        registry: Schema registry to repair.
        known: Schemas stored in the ledger (the database of the ETL), with their ids as keys.

    Returns:
        The schemas that were registered again, with their ids as keys; empty if none were missing.

    Raises:
        Finding: A known id belongs to another schema, in which case nothing was registered, or the
            registry assigned an unexpected id.
        Unavailable: The registry does not respond.
    """
    missing = {}
    for schema_id, schema in sorted((n, s) for n, s in known.items() if s.text):
        standing = registry.schema(schema_id)
        if standing is not None and fingerprint(plain_spelling(standing)) != schema.fingerprint:
            raise Finding(
                f"the schema registry assigns id {schema_id} to {standing.get('name')} "
                f"({fingerprint(standing)}), but in the ledger this id belongs to "
                f"{schema.meaning}: this registry cannot be repaired. Restore a copy of the "
                "registry, or set registry.url to an empty registry, then repeat the command. "
                "Nothing was registered"
            )
        if standing is None or registry.find(schema.topic, schema.schema) != schema_id:
            missing[schema_id] = schema
    for schema_id, schema in missing.items():
        if registry.schema(schema_id) is None:
            _fill(registry, schema_id)
        given = registry.register(schema.topic, schema.schema)
        if given != schema_id:
            raise Finding(
                f"the schema registry assigned id {given} to {schema.meaning}, but in the ledger "
                f"it has id {schema_id}: the registry contains schemas that are not in the "
                "ledger. Set registry.url to an empty registry or to a copy of the lost one, "
                "then repeat the command"
            )
    return missing


def _fill(registry: RegistryClient, schema_id: int) -> None:
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
