"""Lookup of the schema ids of audit records and host reports in the schema registry.

The service looks up schemas at startup, with retries, and again when a rules revision needs another
audit schema. It never registers schemas, which is the task of `hourmark types apply`: in a registry
that was recreated, new registrations could take the ids of event types before an operator repairs
it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Set
from typing import Final, Protocol

from hourmark.avro.framing import Schema, framing_header
from hourmark.errors import Unavailable, UsageError
from hourmark.kafka.topic_names import AUDIT, HOSTS
from hourmark.records import audit, host_reports

_LOG = logging.getLogger(__name__)

PAUSE_MAX_S: Final = 10.0


class SchemaIdLookup(Protocol):
    """Interface for looking up schema ids in a schema registry.

    `SchemaRegistry` implements it.
    """

    def find(self, topic: str, schema: Schema) -> int | None:
        """Return the id of a schema that is registered for a topic.

        Args:
            topic: Name of the topic.
            schema: Avro schema of the topic's values.

        Returns:
            The schema id, or None if the schema is not registered for this topic.

        Raises:
            Unavailable: If the registry does not respond.
            UsageError: If the registry rejects the request.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Framing:
    """The byte prefixes of encoded audit records and host reports, which contain the schema ids.

    An audit record contains the event counts of a byte range. A host report states the time up to
    which a host has sent all its data.

    Attributes:
        audit: Prefixes of audit records. The key True is for audit records with a count of blank
            lines, and the key False for audit records without it. A key is missing if no known
            rules revision needs it.
        hosts: Prefix of host reports.
        with_unknown_losses: Whether the registry has the newest schema of host reports. If not, the
            previous schema is used until `hourmark types apply` is run.
        has_checksums: Whether the registry has the newest schema of audit records, which has
            checksums. If not, the previous schema is used until `hourmark types apply` is run.
    """

    audit: Mapping[bool, bytes]
    hosts: bytes
    with_unknown_losses: bool = (
        True  # reports: else their schema is the one of before, until types are applied
    )
    has_checksums: bool = True  # audit records: likewise

    @property
    def is_newest(self) -> bool:
        """Return whether the schema registry has the newest schemas of this software.

        If it does not, older schemas are used. Run `hourmark types apply` to register the newest
        ones.
        """
        return self.with_unknown_losses and self.has_checksums


async def find_framing(
    registry: SchemaIdLookup,
    blank_counting: Set[bool],
    types_by_schema_id: Callable[[], Mapping[int, str]],
    on_error: Callable[[str], None],
    pause_max_s: float = PAUSE_MAX_S,
) -> Framing:
    """Look up the schema ids of audit records and host reports in the schema registry.

    If the registry is unavailable or lacks a schema, the lookup is repeated until it succeeds. The
    delay between two attempts increases from 0.5 seconds to `pause_max_s`.

    Args:
        registry: Schema registry to query.
        blank_counting: Required kinds of audit records: True for audit records with a count of
            blank lines, False for audit records without it.
        types_by_schema_id: Function that maps each schema id in use to its event type. The lookup
            fails if one of these ids is returned, because the registry has then lost its schemas.
        on_error: Called after each failed attempt with the reason, which starts with a colon and a
            space.
        pause_max_s: Maximum delay between two attempts, in seconds.

    Returns:
        The byte prefixes with the schema ids for all required kinds of records.
    """
    pause_s = 0.5
    while True:
        try:
            return await asyncio.to_thread(_find, registry, blank_counting, types_by_schema_id())
        except (Unavailable, UsageError) as error:
            _LOG.warning(
                "the schema ids of audit records and reports cannot be determined yet: %s", error
            )
            on_error(f": {error}")
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, pause_max_s)


def _find(registry: SchemaIdLookup, needed: Set[bool], taken: Mapping[int, str]) -> Framing:
    of_before = registry.find(HOSTS, host_reports.SCHEMA_BEFORE_UNKNOWN)
    with_unknown_losses = of_before is None or registry.find(HOSTS, host_reports.SCHEMA) is not None
    schema = host_reports.SCHEMA if with_unknown_losses else host_reports.SCHEMA_BEFORE_UNKNOWN
    of_before = registry.find(AUDIT, audit.SCHEMA_BEFORE_CHECKSUMS) if True in needed else None
    has_checksums = of_before is None or registry.find(AUDIT, audit.SCHEMA) is not None
    with_blanks = audit.SCHEMA if has_checksums else audit.SCHEMA_BEFORE_CHECKSUMS
    schemas = {True: with_blanks, False: audit.SCHEMA_BEFORE_BLANKS}
    return Framing(
        audit={
            counts_blanks: framing_header(_id(registry, AUDIT, schemas[counts_blanks], taken))
            for counts_blanks in sorted(needed)
        },
        hosts=framing_header(_id(registry, HOSTS, schema, taken)),
        with_unknown_losses=with_unknown_losses,
        has_checksums=has_checksums,
    )


def _id(registry: SchemaIdLookup, topic: str, schema: Schema, taken: Mapping[int, str]) -> int:
    schema_id = registry.find(topic, schema)
    if schema_id is None:
        raise UsageError(
            f"the schema registry has no schema of {topic}; run `hourmark types apply` or "
            "`hourmark types repair`"
        )
    if schema_id in taken:
        raise UsageError(
            f"the schema registry returned id {schema_id} for {topic}, but in the rules this id "
            f"belongs to {taken[schema_id]}: the registry was recreated. Set registry.url to an "
            "empty registry or to a copy of the lost one, then run `hourmark types repair`"
        )
    return schema_id
