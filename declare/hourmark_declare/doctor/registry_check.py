"""Checks that the schema registry has every schema id that the ledger knows. Registers nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from hourmark.avro.framing import fingerprint, plain_spelling
from hourmark.avro.registry import SchemaRegistry
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark.rules.revision import KnownSchema
from hourmark_declare.doctor.check_result import (
    DoctorCheckResult,
    finding_result,
    passed_result,
    skipped_result,
)
from hourmark_declare.registry_repair import RegistryClient
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.ledger.rules import LedgerRules

CHECK: Final = "registry"


def check_registry(config: Config) -> Iterator[DoctorCheckResult]:
    """Check whether the schema registry is available and contains all schemas of the ledger.

    Args:
        config: Configuration of the schema registry and the ledger (the database of the ETL).

    Yields:
        A passed result when the registry has answered. Then, the results of `evaluate_schemas`, or
        a skipped result if the ledger cannot be read.

    Raises:
        Unavailable: The registry does not respond.
    """
    with contextlib.closing(SchemaRegistry(config.registry)) as registry:
        registry.schema(1)  # any answer shows that the registry is up
        yield passed_result(CHECK, "registry.url", "it answers")
        try:
            with open_existing_ledger(config) as ledger:
                known = LedgerRules(ledger).schemas()
        except HourmarkError:
            yield skipped_result(
                CHECK, "schemas", "the expected schemas are in the ledger, which cannot be read"
            )
            return
        yield from evaluate_schemas(registry, known)


def evaluate_schemas(
    registry: RegistryClient, known: Mapping[int, KnownSchema]
) -> Iterator[DoctorCheckResult]:
    """Check whether the schema registry contains each known schema under its id and subject.

    Args:
        registry: Schema registry to check.
        known: Schemas stored in the ledger (the database of the ETL), with their ids as keys.

    Yields:
        A finding for each schema that is missing, or whose id belongs to another schema. One passed
        result if there are no problems.

    Raises:
        Unavailable: The registry does not respond.
    """
    wrong = 0
    for schema_id, schema in sorted((n, s) for n, s in known.items() if s.text):
        subject, registered = f"id {schema_id} of {schema.event_type}", registry.schema(schema_id)
        if registered is not None and fingerprint(plain_spelling(registered)) != schema.fingerprint:
            wrong += 1
            yield finding_result(
                CHECK,
                subject,
                f"it belongs to another schema, {registered.get('name')}",
                "restore a copy of the registry, or set registry.url to an empty one and "
                "run `hourmark types repair`",
            )
        elif registered is None or registry.find(schema.topic, schema.schema) != schema_id:
            wrong += 1
            yield finding_result(
                CHECK,
                subject,
                f"it is not registered under subject {schema.topic}-value",
                "`hourmark types repair` registers it again, under the same id",
            )
    if not wrong:
        yield passed_result(
            CHECK, "schemas", f"{len(known)} that the ledger knows, all registered under their ids"
        )
