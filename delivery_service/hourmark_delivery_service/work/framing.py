"""Schema ids of audit records and host reports: asked of the registry at start, again and again
while it is away, and once more where a revision comes whose ranges have audit records in another
schema.

They are only asked for: `hourmark types apply` registers them. A service that registered schemas
would take ids from types in a registry that was recreated, before anybody could repair it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Set
from typing import Final, Protocol

from hourmark.avro.framing import Schema, frame
from hourmark.errors import Unavailable, UsageError
from hourmark.kafka.topic_names import AUDIT, HOSTS
from hourmark.records import audit, host_reports

_LOG = logging.getLogger(__name__)

_PAUSE_MAX_S: Final = 10.0


class SchemaLookup(Protocol):
    """What is needed of a registry: `hourmark.avro.registry.SchemaRegistry` has it."""

    def find(self, topic: str, schema: Schema) -> int | None:
        """The schema's id, or None where it has none; Unavailable, or UsageError."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Framing:
    """What stands before each datum. `audit`: by whether the record counts blank lines, as far as
    known rules need it.
    """

    audit: Mapping[bool, bytes]
    hosts: bytes
    tells_unknown: bool = (
        True  # reports: else their schema is the one of before, until types are applied
    )
    has_checksums: bool = True  # audit records: likewise

    @property
    def is_newest(self) -> bool:
        """Whether the registry has all schemas of this version; otherwise `hourmark types apply`
        has not run since an upgrade.
        """
        return self.tells_unknown and self.has_checksums


async def find_framing(
    registry: SchemaLookup,
    blank_counting: Set[bool],
    types_by_schema_id: Callable[[], Mapping[int, str]],
    on_error: Callable[[str], None],
) -> Framing:
    """All ids, however long it takes.

    `needed`: of which audit records; `taken`: the ids of the rules, and their types. `say` is told
    why it takes long.
    """
    pause_s = 0.5
    while True:
        try:
            return await asyncio.to_thread(_find, registry, blank_counting, types_by_schema_id())
        except (Unavailable, UsageError) as error:
            _LOG.warning("the schema ids of audit records and reports are not known yet: %s", error)
            on_error(f": {error}")
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, _PAUSE_MAX_S)


def _find(registry: SchemaLookup, needed: Set[bool], taken: Mapping[int, str]) -> Framing:
    of_before = registry.find(HOSTS, host_reports.SCHEMA_BEFORE_UNKNOWN)
    tells_unknown = of_before is None or registry.find(HOSTS, host_reports.SCHEMA) is not None
    schema = host_reports.SCHEMA if tells_unknown else host_reports.SCHEMA_BEFORE_UNKNOWN
    of_before = registry.find(AUDIT, audit.SCHEMA_BEFORE_CHECKSUMS) if True in needed else None
    has_checksums = of_before is None or registry.find(AUDIT, audit.SCHEMA) is not None
    with_blanks = audit.SCHEMA if has_checksums else audit.SCHEMA_BEFORE_CHECKSUMS
    schemas = {True: with_blanks, False: audit.SCHEMA_BEFORE_BLANKS}
    return Framing(
        audit={
            counts_blanks: frame(_id(registry, AUDIT, schemas[counts_blanks], taken))
            for counts_blanks in sorted(needed)
        },
        hosts=frame(_id(registry, HOSTS, schema, taken)),
        tells_unknown=tells_unknown,
        has_checksums=has_checksums,
    )


def _id(registry: SchemaLookup, topic: str, schema: Schema, taken: Mapping[int, str]) -> int:
    schema_id = registry.find(topic, schema)
    if schema_id is None:
        raise UsageError(
            f"the schema registry has no schema of {topic}: `hourmark types apply`, or "
            "`hourmark types repair`"
        )
    if schema_id in taken:
        raise UsageError(
            f"the schema registry gives id {schema_id} for {topic}, which the rules know as "
            f"that of {taken[schema_id]}: it was "
            "recreated. Give registry.url an empty one, or a copy of the lost one, then "
            "`hourmark types repair`"
        )
    return schema_id
