"""Asks the schema registry for each schema id that the ledger knows. Registers nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from hourmark.avro.framing import fingerprint, plain_spelling
from hourmark.avro.registry import SchemaRegistry
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark.rules.revision import KnownSchema
from hourmark_declare.doctor.finding import Answer, finding, not_asked, well
from hourmark_declare.registry_repair import Registry
from hourmark_etl.ledger.existing import open_existing_ledger
from hourmark_etl.ledger.rules import LedgerRules

CHECK: Final = "registry"


def ask(config: Config) -> Iterator[Answer]:
    """Whether it answers, and still has what the ledger knows."""
    with contextlib.closing(SchemaRegistry(config.registry)) as registry:
        registry.schema(1)  # whether there is one or not: it answers
        yield well(CHECK, "registry.url", "it answers")
        try:
            with open_existing_ledger(config) as ledger:
                known = LedgerRules(ledger).schemas()
        except HourmarkError:
            yield not_asked(
                CHECK, "schemas", "which it must have, the ledger knows, and that cannot be asked"
            )
            return
        yield from schemas_judged(registry, known)


def schemas_judged(registry: Registry, known: Mapping[int, KnownSchema]) -> Iterator[Answer]:
    """Of each id of the ledger whether the registry has it, for what it was, under its topic's
    subject.
    """
    wrong = 0
    for schema_id, schema in sorted((n, s) for n, s in known.items() if s.text):
        subject, standing = f"id {schema_id} of {schema.event_type}", registry.schema(schema_id)
        if standing is not None and fingerprint(plain_spelling(standing)) != schema.fingerprint:
            wrong += 1
            yield finding(
                CHECK,
                subject,
                f"it stands for another schema, {standing.get('name')}",
                "restore a copy of the registry, or set registry.url to an empty one and "
                "run `hourmark types repair`",
            )
        elif standing is None or registry.find(schema.topic, schema.schema) != schema_id:
            wrong += 1
            yield finding(
                CHECK,
                subject,
                f"it is not registered under subject {schema.topic}-value",
                "`hourmark types repair` registers it again, under the same id",
            )
    if not wrong:
        yield well(
            CHECK, "schemas", f"{len(known)} that the ledger knows, all registered under their ids"
        )
