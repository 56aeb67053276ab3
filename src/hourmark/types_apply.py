"""Applies declarations: schemas, then topics, then the ledger, then the topic of rules; in this order, so that whoever sees the
new revision finds all it names. Each step can be repeated after a crash.

The ledger decides: rules, schemas and frontier rows are put in one transaction, if nobody else came first. The topic
`hourmark.types` is a copy of the ledger's rules for delivery services: whatever it lacks is published, whoever put it.

A schema id means one thing for ever. Before a new id is asked for, the registry must still give the known ids for what they were
given for: one that was made anew, or restored from an older copy, would give them a second meaning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from hourmark import audit, host_reports
from hourmark.avro import Schema
from hourmark.avro_evolution import why_unreadable
from hourmark.errors import Finding, UsageError
from hourmark.event_types import Declarations, EventType
from hourmark.hours import Hour
from hourmark.registry_repair import repair_registry
from hourmark.rules import Record, Rules, RulesBook, SchemaMeaning, TypeVersion, refuse_second_meaning
from hourmark.rules_change import check_change, next_rules
from hourmark.topics import AUDIT, HOSTS, events_topic


class Ledger(Protocol):
    """`etl.ledger.rules.LedgerRules`."""

    def book(self) -> RulesBook:
        """Every revision that was ever put."""
        ...

    def adopt(self, others: RulesBook) -> int:
        """Take what only the topic has; how many records."""
        ...

    def put(self, rules: Rules, after: Rules | None, first_hour: Hour) -> list[str]:
        """Put the revision in force if `after` still is; the types that are new."""
        ...


class Registry(Protocol):
    """`hourmark.registry.SchemaRegistry`."""

    def register(self, topic: str, schema: Schema) -> int:
        """The schema's id, given now where it is new."""
        ...

    def find(self, topic: str, schema: Schema) -> int | None:
        """The schema's id, or None where it has none."""
        ...

    def schema(self, schema_id: int) -> Schema | None:
        """The schema of that id, or None."""
        ...


class RulesTopic(Protocol):
    """The topic `hourmark.types`."""

    def read(self) -> RulesBook:
        """All that it holds."""
        ...

    def publish(self, records: Sequence[Record]) -> None:
        """Return once all in-sync replicas have them."""
        ...


@dataclasses.dataclass(frozen=True)
class Outside:
    """What declarations are applied to. `make_topics`: makes those of the types that are missing, and tells which."""

    ledger: Ledger
    registry: Registry
    topic: RulesTopic
    make_topics: Callable[[Sequence[EventType]], list[str]]
    say: Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Applied:
    """What an application did."""

    revision: str
    new_revision: bool
    schema_ids: dict[str, int]
    topics_created: list[str]
    new_types: list[str]
    first_hour: str


@dataclasses.dataclass(frozen=True)
class Repaired:
    """What a repair did: records that the ledger took from the topic, schemas registered again, records published again."""

    revision: str | None
    adopted: int
    registered: dict[int, str]
    published: int


def apply(outside: Outside, declared: Declarations, first_hour: Hour, *, may_remove: bool = False) -> Applied:
    """Make everything outside agree with the declarations. Raises what stops it; running it again goes on.

    `first_hour`: of new types. `may_remove`: types and sources in force may be left out; their topics, buckets and older ranges
    stay as they are.
    """
    book, _ = _known(outside)
    latest = book.latest
    check_change(latest, declared, first_hour.length_s, may_remove=may_remove)
    schema_ids = _schema_ids(outside.registry, book, declared.types)
    outside.say(f"{len(declared.types)} schemas are registered")
    created = outside.make_topics(declared.types)
    outside.say(f"topics: {len(created)} created, the others checked")
    rules = next_rules(latest, declared, schema_ids, first_hour.length_s)
    new_types = outside.ledger.put(rules, latest, first_hour)
    outside.say(f"frontiers: {len(new_types)} new types begin at {first_hour}")
    _publish_missing(outside)
    outside.say(f"rules revision {rules.id} " + ("published" if rules is not latest else "stands already"))
    return Applied(rules.id, rules is not latest, schema_ids, created, new_types, str(first_hour))


def repair(outside: Outside) -> Repaired:
    """Write again what the topic of rules or the registry lost, under the same names and ids. Changes no rules.

    Finding where the registry gives known ids to other schemas: that cannot be undone from here.
    """
    book, adopted = _known(outside)
    latest = book.latest
    registered = repair_registry(outside.registry, book.schemas())
    if latest is not None:
        _register_own(outside.registry, {schema_id: version.meaning for schema_id, version in book.schemas().items()})
    if registered:
        outside.say(f"registered {len(registered)} schemas again, under the same ids")
    if latest is not None:
        outside.make_topics([t.declaration for t in latest.types.values()])
    published = _publish_missing(outside)
    outside.say(f"published {published} records again")
    return Repaired(latest.id if latest else None, adopted, {i: v.declaration.name for i, v in registered.items()}, published)


def _known(outside: Outside) -> tuple[RulesBook, int]:
    """The ledger's rules, after it took what only the topic has; and how many records that was."""
    adopted = outside.ledger.adopt(outside.topic.read())
    if adopted:
        outside.say(f"the ledger took {adopted} records from the topic of rules")
    return outside.ledger.book(), adopted


def _publish_missing(outside: Outside) -> int:
    """Types before revisions: an uncompacted topic then makes nobody wait."""
    standing = outside.topic.read().records
    records = sorted(outside.ledger.book().records.items(), key=lambda record: record[0].startswith("rules/"))
    missing = [record for record in records if record[0] not in standing]
    outside.topic.publish(missing)
    return len(missing)


def _schema_ids(registry: Registry, book: RulesBook, types: Sequence[EventType]) -> dict[str, int]:
    """Of each type. UsageError, and nothing registered, where the registry no longer knows what it gave ids for."""
    meanings = {schema_id: version.meaning for schema_id, version in book.schemas().items()}
    known = {meaning: schema_id for schema_id, meaning in meanings.items()}
    before: dict[str, list[TypeVersion]] = {}
    for version in book.schemas().values():
        before.setdefault(version.declaration.name, []).append(version)
    in_force = book.latest.types if book.latest is not None else {}
    wanted = {t.name: TypeVersion(t, 0) for t in types}
    for version in {**{f"{name} in force": v for name, v in in_force.items()}, **wanted}.values():
        if (schema_id := known.get(version.meaning)) is not None:
            _check_known(registry, version, schema_id)
    for name, version in wanted.items():
        if name not in in_force or in_force[name].meaning != version.meaning:
            _check_reads(version, before.get(name, ()))
    ids = {}
    for name, version in wanted.items():
        ids[name] = known.get(version.meaning) or _new_id(registry, events_topic(name), version.schema, meanings, version.meaning)
        meanings[ids[name]] = version.meaning
    _register_own(registry, meanings)
    return ids


def _register_own(registry: Registry, meanings: Mapping[int, SchemaMeaning]) -> None:
    """Schemas that services ask for, and are no type's."""
    for topic, schema in ((AUDIT, audit.SCHEMA), (HOSTS, host_reports.SCHEMA)):
        _new_id(registry, topic, schema, meanings, None)


def _check_known(registry: Registry, version: TypeVersion, schema_id: int) -> None:
    found = registry.find(events_topic(version.declaration.name), version.schema)
    if found != schema_id:
        raise UsageError(
            f"the schema registry gives {'no id' if found is None else f'id {found}'} for {version.meaning}, which the "
            f"rules know as id {schema_id}: it was made anew, or restored from an older copy. Restore its newest copy, or run "
            "`hourmark types repair`; nothing was registered"
        )


def _check_reads(version: TypeVersion, before: Sequence[TypeVersion]) -> None:
    """UsageError where closed buckets could not be read with this version: of all before it, not only of the last."""
    for old in before:
        if why := why_unreadable(old.schema, version.schema):
            raise UsageError(
                f"{version.declaration.name}: what was written under schema id {old.schema_id} cannot be read with this: {why}. "
                "New fields need a default, fields keep their type (or are promoted: int to long), and a name that was "
                "used keeps its type for ever; docs/event-types.md"
            )


def _new_id(
    registry: Registry, topic: str, schema: Schema, meanings: Mapping[int, SchemaMeaning], meaning: SchemaMeaning | None
) -> int:
    schema_id = registry.register(topic, schema)
    other = SchemaMeaning(topic, "no event type") if meaning is None else meaning
    try:
        refuse_second_meaning(schema_id, meanings.get(schema_id, other), other)
    except ValueError as error:
        raise Finding(str(error)) from error
    return schema_id
