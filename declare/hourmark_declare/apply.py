"""Applies declarations: schemas, then topics, then the ledger, then the topic of rules; in this
order, so that whoever sees the new revision finds all it names. Each step can be repeated after a
crash.

The ledger decides: rules, schemas and frontier rows are put in one transaction, if nobody else came
first. The topic `hourmark.types` is a copy of the ledger's rules for delivery services: whatever it
lacks is published, whoever put it.

A schema id means one thing for ever. Before a new id is asked for, the registry must still give the
known ids for what they were given for: one that was recreated, or restored from an older copy,
would give them a second meaning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from hourmark.errors import Finding, Unavailable, UsageError
from hourmark.kafka.topic_names import AUDIT, HOSTS
from hourmark.records import audit, host_reports
from hourmark.records.hours import Hour
from hourmark.rules.change import check_change, check_record_sizes, next_rules
from hourmark.rules.event_types import Declarations, EventType
from hourmark.rules.narrowing import check_refused_lines
from hourmark.rules.revision import (
    KnownSchema,
    Record,
    Rules,
    RulesBook,
    check_same_meaning,
    revision_order,
)
from hourmark_declare.avro_evolution import why_unreadable
from hourmark_declare.registry_repair import Registry, repair_registry
from hourmark_declare.samples import Samples, check_samples
from hourmark_etl.ledger.rules import LedgerRules

_Done = TypeVar("_Done")
# What services write beside events: asked for by them, registered here.
_OWN: Final = (
    KnownSchema.from_schema(AUDIT, audit.SCHEMA),
    KnownSchema.from_schema(HOSTS, host_reports.SCHEMA),
)


class RulesTopic(Protocol):
    """The topic `hourmark.types`."""

    def read(self) -> RulesBook:
        """All that it holds."""
        ...

    def publish(self, records: Sequence[Record]) -> None:
        """Return once all in-sync replicas have them."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outside:
    """What declarations are applied to. `topics`: of rules, one at each edge.

    `make_topics`: makes those of the types that are missing, and tells which. `record_bytes_max`:
    of the topic of rules.
    """

    ledger: LedgerRules
    registry: Registry
    topics: Sequence[RulesTopic]
    make_topics: Callable[[Sequence[EventType]], list[str]]
    say: Callable[[str], None]
    record_bytes_max: int


@dataclasses.dataclass(frozen=True, kw_only=True)
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
    """What a repair did: records that the ledger took from the topic, schemas registered again,
    records published again.
    """

    revision: str | None
    adopted: int
    registered: dict[int, str]
    published: int


def apply(
    outside: Outside,
    declared: Declarations,
    first_hour: Hour,
    *,
    may_remove: bool = False,
    may_refuse: bool = False,
    may_adopt: bool = False,
    samples: Samples | None = None,
) -> Applied:
    """Make everything outside agree with the declarations.

    Raises what stops it; running it again goes on.

    `first_hour`: of new types. `may_remove`: types and sources in force may be left out; their
    topics, buckets and older ranges stay as they are. `may_refuse`: lines that are events now may
    become dead letters; else `samples`, too, must stay events. `may_adopt`: as for `repair`.
    Whatever may be refused is asked before anything is registered.
    """
    book, _ = _known(outside, first_hour, may_adopt=may_adopt)
    latest, known = book.latest, outside.ledger.schemas()
    check_change(latest, declared, first_hour.length_s, may_remove=may_remove)
    check_refused_lines(latest, declared, may_refuse=may_refuse)
    if samples is not None and not may_refuse:
        events = check_samples(latest, declared, samples)
        outside.say(
            f"{events} of {len(samples.lines)} sample lines of source {samples.source} are events"
        )
    check_record_sizes(
        next_rules(book, declared, {t.name: 0 for t in declared.types}, first_hour.length_s),
        outside.record_bytes_max,
    )
    wanted = [*(KnownSchema.from_schema(t.name, t.schema()) for t in declared.types), *_OWN]
    _check_reads(wanted, known, latest)
    _check_known(outside.registry, known, wanted, latest)
    created = outside.make_topics(declared.types)
    outside.say(f"topics: {len(created)} created, the others checked")
    ids = _registered(outside.registry, known, wanted)
    outside.say(f"{len(declared.types)} schemas are registered")
    rules = next_rules(book, declared, ids, first_hour.length_s)
    new_types = outside.ledger.put(
        rules, latest, first_hour, {ids[own.event_type]: own for own in _OWN}
    )
    outside.say(f"frontiers: {len(new_types)} new types begin at {first_hour}")
    _publish_missing(outside)
    _check_in_force(outside, rules)
    outside.say(
        f"rules revision {rules.id} " + ("published" if rules is not latest else "stands already")
    )
    return Applied(
        revision=rules.id,
        new_revision=rules is not latest,
        schema_ids={t.name: ids[t.name] for t in declared.types},
        topics_created=created,
        new_types=new_types,
        first_hour=str(first_hour),
    )


def repair(outside: Outside, first_hour: Hour, *, may_adopt: bool = False) -> Repaired:
    """Write again what the topic of rules or the registry lost, under the same names and ids.

    Changes no rules.

    `may_adopt`: a ledger that is an older copy takes what it lacks from the topic; types new to it
    begin at `first_hour`. Each part is tried, whatever became of the others; the first that failed
    is raised. Finding where the registry gives known ids to other schemas: that cannot be undone
    from here.
    """
    book, adopted = _known(outside, first_hour, may_adopt=may_adopt)
    types = [t.declaration for t in book.latest.types.values()] if book.latest is not None else []
    failed: list[Exception] = []

    def part(act: Callable[[], _Done], otherwise: _Done) -> _Done:
        try:
            return act()
        except (Unavailable, Finding, UsageError) as error:
            failed.append(error)
            return otherwise

    part(lambda: outside.make_topics([]), list[str]())  # that of rules, before those of types
    published = part(lambda: _publish_missing(outside), 0)
    outside.say(f"published {published} records again")
    registered = part(
        lambda: repair_registry(outside.registry, outside.ledger.schemas()),
        dict[int, KnownSchema](),
    )
    outside.say(f"registered {len(registered)} schemas again, under the same ids")
    part(lambda: outside.make_topics(types), list[str]())
    if failed:
        raise failed[0]
    names = {schema_id: schema.event_type for schema_id, schema in registered.items()}
    return Repaired(book.latest.id if book.latest is not None else None, adopted, names, published)


def _known(outside: Outside, first_hour: Hour, *, may_adopt: bool) -> tuple[RulesBook, int]:
    """The ledger's rules, after it took what only the topics have; and how many records that
    was.
    """
    adopted = sum(
        _adopted(outside, topic.read(), first_hour, may_adopt=may_adopt) for topic in outside.topics
    )
    return outside.ledger.book(), adopted


def _adopted(outside: Outside, published: RulesBook, first_hour: Hour, *, may_adopt: bool) -> int:
    book = outside.ledger.book()
    if published.unusable:
        *_, last = named = sorted(published.unusable, key=revision_order)
        raise Finding(
            f"hourmark.types holds revisions that this software cannot read: {', '.join(named)} "
            f"({published.unusable[last]}); a "
            "later one wrote them: upgrade this one"
        )
    unknown = sorted(published.ids - book.ids, key=revision_order)
    if not unknown:
        return 0
    if book.latest is not None and not may_adopt:
        raise Finding(
            "hourmark.types holds revisions that the ledger does not know: "
            f"{', '.join(unknown[:5])} ({len(unknown)} in all). Is "
            "the ledger an older copy? Then `hourmark types repair --adopt` takes them. Are "
            "they another site's, or another "
            "ledger's? Then kafka.edge or etl.ledger is wrong. Nothing was changed"
        )
    adopted = outside.ledger.adopt(published, first_hour)
    outside.say(f"the ledger took {adopted} records from the topic of rules")
    return adopted


def _publish_missing(outside: Outside) -> int:
    """Types before revisions: an uncompacted topic then makes nobody wait."""
    records = sorted(
        outside.ledger.book().records.items(), key=lambda record: record[0].startswith("rules/")
    )
    published = 0
    for topic in outside.topics:
        standing = topic.read().records
        if missing := [record for record in records if record[0] not in standing]:
            topic.publish(missing)
            published += len(missing)
    return published


def _check_in_force(outside: Outside, rules: Rules) -> None:
    for topic in outside.topics:
        _refuse_others(outside, topic.read().latest, rules)


def _refuse_others(outside: Outside, latest: Rules | None, rules: Rules) -> None:
    if (
        latest is not None
        and latest.id != rules.id
        and outside.ledger.book().get(latest.id) is None
    ):
        raise Finding(
            f"revision {rules.id} is in this ledger, but services use {latest.id}, which "
            "another ledger has put: one edge has "
            "one ledger. Is etl.ledger right?"
        )


def _check_reads(
    wanted: Sequence[KnownSchema], known: Mapping[int, KnownSchema], latest: Rules | None
) -> None:
    """UsageError where closed buckets could not be read with a type as it is now, whichever version
    they were written with.
    """
    in_force = {name: t.meaning for name, t in latest.types.items()} if latest is not None else {}
    for new in wanted:
        if in_force.get(new.event_type) == new.meaning:
            continue
        for schema_id, old in known.items():
            if (
                old.event_type == new.event_type
                and old.text
                and (why := why_unreadable(old.schema, new.schema))
            ):
                raise UsageError(
                    f"{new.event_type}: what was written under schema id {schema_id} cannot be "
                    f"read with this: {why}. New fields "
                    "need a default, fields keep their type (or are promoted: int to long), "
                    "and a name that was used keeps its "
                    "type for ever; docs/event-types.md"
                )


def _check_known(
    registry: Registry,
    known: Mapping[int, KnownSchema],
    wanted: Sequence[KnownSchema],
    latest: Rules | None,
) -> None:
    """UsageError where the registry no longer knows what it gave ids for: of all that is wanted or
    in force, and the last id.
    """
    ids = {schema.meaning: schema_id for schema_id, schema in known.items()}
    asked = {ids[s.meaning] for s in wanted if s.meaning in ids}
    asked |= {t.schema_id for t in latest.types.values()} if latest is not None else set()
    asked |= {max(known)} if known else set()
    for schema_id in sorted(asked):
        schema = known[schema_id]
        if schema.text and (found := registry.find(schema.topic, schema.schema)) != schema_id:
            raise UsageError(
                f"the schema registry gives {'no id' if found is None else f'id {found}'} for "
                f"{schema.meaning}, which the ledger "
                f"knows as id {schema_id}: it was recreated, or restored from an older copy. "
                "Restore its newest copy, or run "
                "`hourmark types repair`; nothing was registered"
            )


def _registered(
    registry: Registry, known: Mapping[int, KnownSchema], wanted: Sequence[KnownSchema]
) -> dict[str, int]:
    """The id of each type and control topic.

    Finding where the registry gives a new one an id that stands for something else.
    """
    ids = {schema.meaning: schema_id for schema_id, schema in known.items()}
    meanings = {schema_id: schema.meaning for schema_id, schema in known.items()}
    given = {}
    for schema in wanted:
        schema_id = ids.get(schema.meaning) or registry.register(schema.topic, schema.schema)
        try:
            check_same_meaning(
                schema_id, meanings.setdefault(schema_id, schema.meaning), schema.meaning
            )
        except ValueError as error:
            raise Finding(str(error)) from error
        given[schema.event_type] = schema_id
    return given
