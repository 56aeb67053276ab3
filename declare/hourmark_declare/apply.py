"""Applies declarations to the schema registry, topics, ledger and topic of rules, in this order.

Because of this order, a reader of a new revision finds everything that the revision refers to. Each
step can be repeated after a crash.

The ledger (the ETL's database) is authoritative. Rules, schemas and frontier rows (the next hour to
close of each type) are stored in one transaction, unless another process has stored other rules
first. The topic `hourmark.types` is a copy of the ledger's rules for delivery services. Records
that it lacks are published, regardless of which process stored them in the ledger.

The meaning of a schema id never changes. Before new ids are requested, the registry must return the
known ids for known schemas. A registry that was recreated or restored from an older copy would
assign known ids to other schemas.
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
from hourmark_declare.avro_evolution import find_incompatibility
from hourmark_declare.registry_repair import RegistryClient, repair_registry
from hourmark_declare.samples import SampleLines, check_samples
from hourmark_etl.ledger.rules import LedgerRules

_Done = TypeVar("_Done")
# Schemas of the control records that services write besides events; services only look them up.
_OWN: Final = (
    KnownSchema.from_schema(AUDIT, audit.SCHEMA),
    KnownSchema.from_schema(HOSTS, host_reports.SCHEMA),
)


class RulesTopic(Protocol):
    """Interface for the Kafka topic `hourmark.types` on one edge cluster.

    The topic contains all revisions of the rules: event types, sources and limits. Delivery
    services read the rules from this topic.
    """

    def read(self) -> RulesBook:
        """Read all records of the topic.

        Returns:
            All revisions of the rules; an empty `RulesBook` if the topic has no records.

        Raises:
            Unavailable: The Kafka cluster does not respond.
        """
        ...

    def publish(self, records: Sequence[Record]) -> None:
        """Append records to the topic and wait until all in-sync replicas have stored them.

        Args:
            records: Keys and values, in the order in which they are appended.

        Raises:
            Unavailable: The Kafka cluster does not acknowledge the records.
        """
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApplyTargets:
    """Servers and callbacks for `apply_declarations` and `repair_rules`.

    The rules consist of the applied event types, sources and limits. A revision is one version of
    the rules.

    Attributes:
        ledger: Client for the rules stored in the ledger (the database of the ETL).
        registry: Client for the schema registry.
        topics: The Kafka topic `hourmark.types` of each edge cluster, which contains all revisions
            of the rules.
        create_topics: Function that creates missing topics for the given types, and the topics that
            every installation needs. Returns the names of the created topics.
        report: Function that receives one line of text for each completed step.
        record_bytes_max: Maximum size of a record in `hourmark.types`, in bytes.
    """

    ledger: LedgerRules
    registry: RegistryClient
    topics: Sequence[RulesTopic]
    create_topics: Callable[[Sequence[EventType]], list[str]]
    report: Callable[[str], None]
    record_bytes_max: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApplyResult:
    """The result of `apply_declarations`.

    The rules consist of event types, sources and limits. A revision is one version of the rules.

    Attributes:
        revision: Id of the active revision.
        new_revision: Whether a new revision was created. False if the declarations do not differ
            from the previous revision.
        schema_ids: Maps each type name to its schema id.
        topics_created: Names of the created Kafka topics.
        new_types: Names of the added types.
        first_hour: Label of the first hourly bucket of the new types, such as `2026-11-21T05`.
    """

    revision: str
    new_revision: bool
    schema_ids: dict[str, int]
    topics_created: list[str]
    new_types: list[str]
    first_hour: str


@dataclasses.dataclass(frozen=True)
class RepairResult:
    """The result of `repair_rules`: the restored records and schemas.

    The rules consist of event types, sources and limits. A revision is one version of the rules.

    Attributes:
        revision: Id of the active revision; None if no types have been applied.
        adopted: Number of records missing in the ledger (the database of the ETL) that were copied
            from the Kafka topic `hourmark.types`.
        registered: Maps the id of each schema that was registered again to its type name.
        published: Number of records missing in `hourmark.types` that were published again.
    """

    revision: str | None
    adopted: int
    registered: dict[int, str]
    published: int


def apply_declarations(
    targets: ApplyTargets,
    declared: Declarations,
    first_hour: Hour,
    *,
    may_remove: bool = False,
    may_refuse: bool = False,
    may_adopt: bool = False,
    samples: SampleLines | None = None,
) -> ApplyResult:
    """Apply declared event types and sources as a new revision of the rules.

    The declarations are checked first. Then, schemas are registered, topics are created, and the
    revision is stored in the ledger (the ETL's database) and the topic `hourmark.types`. If a
    server fails, repeat the call.

    Args:
        targets: Servers to change.
        declared: New declarations of types, sources and limits.
        first_hour: First bucket of new types; its length is the bucket length.
        may_remove: Whether the declarations may omit active types and sources.
        may_refuse: Whether lines that are currently events may become dead letters (lines that
            cannot be parsed).
        may_adopt: Whether revisions that only `hourmark.types` contains are copied to the ledger.
        samples: Lines that must remain events, unless `may_refuse` is True.

    Returns:
        The active revision, which is the old one if nothing changes.

    Raises:
        UsageError: The declarations conflict with the active rules, or the schema registry does not
            return known ids.
        Finding: The registry assigned the id of another schema, or `hourmark.types` contains
            unknown revisions.
        Unavailable: A server does not respond.
    """
    book, _ = _known(targets, first_hour, may_adopt=may_adopt)
    latest, known = book.latest, targets.ledger.schemas()
    check_change(latest, declared, first_hour.length_s, may_remove=may_remove)
    check_refused_lines(latest, declared, may_refuse=may_refuse)
    if samples is not None and not may_refuse:
        events = check_samples(latest, declared, samples)
        targets.report(
            f"{events} of {len(samples.lines)} sample lines of source {samples.source} are events"
        )
    check_record_sizes(
        next_rules(book, declared, {t.name: 0 for t in declared.types}, first_hour.length_s),
        targets.record_bytes_max,
    )
    wanted = [*(KnownSchema.from_schema(t.name, t.schema()) for t in declared.types), *_OWN]
    _check_reads(wanted, known, latest)
    _check_known(targets.registry, known, wanted, latest)
    created = targets.create_topics(declared.types)
    targets.report(f"topics: {len(created)} created, all others verified")
    ids = _registered(targets.registry, known, wanted)
    targets.report(f"{len(declared.types)} schemas are registered")
    rules = next_rules(book, declared, ids, first_hour.length_s)
    new_types = targets.ledger.put(
        rules, latest, first_hour, {ids[own.event_type]: own for own in _OWN}
    )
    targets.report(f"frontiers: {len(new_types)} new types begin at {first_hour}")
    _publish_missing(targets)
    _check_in_force(targets, rules)
    targets.report(
        f"rules revision {rules.id} "
        + ("published" if rules is not latest else "was already published")
    )
    return ApplyResult(
        revision=rules.id,
        new_revision=rules is not latest,
        schema_ids={t.name: ids[t.name] for t in declared.types},
        topics_created=created,
        new_types=new_types,
        first_hour=str(first_hour),
    )


def repair_rules(
    targets: ApplyTargets, first_hour: Hour, *, may_adopt: bool = False
) -> RepairResult:
    """Restore lost rules records and schemas from the ledger (the database of the ETL).

    Records are restored in the Kafka topic `hourmark.types`, and schemas in the schema registry.
    Names, schema ids and the active rules do not change. If one part fails, the other parts are
    still attempted. The first error is raised at the end.

    Args:
        targets: Servers to repair.
        first_hour: First hourly bucket of types that the ledger copies from `hourmark.types`.
        may_adopt: Whether the ledger may copy revisions that only `hourmark.types` contains. Set it
            if the ledger was restored from an older backup.

    Returns:
        The numbers of restored records, and the restored schemas.

    Raises:
        Finding: The registry has assigned a known id to another schema, or `hourmark.types`
            contains revisions that the ledger does not know.
        Unavailable: A server does not respond.
    """
    book, adopted = _known(targets, first_hour, may_adopt=may_adopt)
    types = [t.declaration for t in book.latest.types.values()] if book.latest is not None else []
    failed: list[Exception] = []

    def part(act: Callable[[], _Done], otherwise: _Done) -> _Done:
        try:
            return act()
        except (Unavailable, Finding, UsageError) as error:
            failed.append(error)
            return otherwise

    part(
        lambda: targets.create_topics([]), list[str]()
    )  # the topic of rules, before those of types
    published = part(lambda: _publish_missing(targets), 0)
    targets.report(f"published {published} records again")
    registered = part(
        lambda: repair_registry(targets.registry, targets.ledger.schemas()),
        dict[int, KnownSchema](),
    )
    targets.report(f"registered {len(registered)} schemas again, under the same ids")
    part(lambda: targets.create_topics(types), list[str]())
    if failed:
        raise failed[0]
    names = {schema_id: schema.event_type for schema_id, schema in registered.items()}
    return RepairResult(
        book.latest.id if book.latest is not None else None, adopted, names, published
    )


def _known(targets: ApplyTargets, first_hour: Hour, *, may_adopt: bool) -> tuple[RulesBook, int]:
    # Return the ledger's rules, after adding revisions that only the topics have, and their number.
    adopted = sum(
        _adopted(targets, topic.read(), first_hour, may_adopt=may_adopt) for topic in targets.topics
    )
    return targets.ledger.book(), adopted


def _adopted(
    targets: ApplyTargets, published: RulesBook, first_hour: Hour, *, may_adopt: bool
) -> int:
    book = targets.ledger.book()
    if published.unusable:
        *_, last = named = sorted(published.unusable, key=revision_order)
        raise Finding(
            "hourmark.types contains revisions that this version of Hourmark cannot read: "
            f"{', '.join(named)} ({published.unusable[last]}); a later version wrote them; "
            "upgrade this one"
        )
    unknown = sorted(published.ids - book.ids, key=revision_order)
    if not unknown:
        return 0
    if book.latest is not None and not may_adopt:
        raise Finding(
            "hourmark.types contains revisions that the ledger does not contain: "
            f"{', '.join(unknown[:5])} ({len(unknown)} in total). If the ledger is an older "
            "copy, add them with `hourmark types repair --adopt`. If they belong to another "
            "site or another ledger, correct kafka.edge or etl.ledger. Nothing was changed"
        )
    adopted = targets.ledger.adopt(published, first_hour)
    targets.report(f"{adopted} records were added to the ledger from the topic of rules")
    return adopted


def _publish_missing(targets: ApplyTargets) -> int:
    # Publish the records that a topic of rules lacks, and return their number. Types come before
    # revisions, so that readers of an uncompacted topic need not wait for them.
    records = sorted(
        targets.ledger.book().records.items(), key=lambda record: record[0].startswith("rules/")
    )
    published = 0
    for topic in targets.topics:
        present = topic.read().records
        if missing := [record for record in records if record[0] not in present]:
            topic.publish(missing)
            published += len(missing)
    return published


def _check_in_force(targets: ApplyTargets, rules: Rules) -> None:
    for topic in targets.topics:
        _refuse_others(targets, topic.read().latest, rules)


def _refuse_others(targets: ApplyTargets, latest: Rules | None, rules: Rules) -> None:
    if (
        latest is not None
        and latest.id != rules.id
        and targets.ledger.book().get(latest.id) is None
    ):
        raise Finding(
            f"revision {rules.id} is in this ledger, but services use {latest.id}, which another "
            "ledger published; an edge cluster must have only one ledger. Check etl.ledger"
        )


def _check_reads(
    wanted: Sequence[KnownSchema], known: Mapping[int, KnownSchema], latest: Rules | None
) -> None:
    in_force = {name: t.meaning for name, t in latest.types.items()} if latest is not None else {}
    for new in wanted:
        if in_force.get(new.event_type) == new.meaning:
            continue
        for schema_id, old in known.items():
            if (
                old.event_type == new.event_type
                and old.text
                and (why := find_incompatibility(old.schema, new.schema))
            ):
                raise UsageError(
                    f"{new.event_type}: events that were written with schema id {schema_id} "
                    f"cannot be read with this declaration: {why}. New fields need a default. "
                    "Existing fields must keep their type (promotion, such as int to long, is "
                    "allowed), and the name of a removed field can only be reused with the same "
                    "type; see docs/event-types.md"
                )


def _check_known(
    registry: RegistryClient,
    known: Mapping[int, KnownSchema],
    wanted: Sequence[KnownSchema],
    latest: Rules | None,
) -> None:
    # Raise UsageError if the registry does not return the ids that it assigned to known schemas.
    # Checks the ids of wanted schemas, of the rules in force, and the highest known id.
    ids = {schema.meaning: schema_id for schema_id, schema in known.items()}
    asked = {ids[s.meaning] for s in wanted if s.meaning in ids}
    asked |= {t.schema_id for t in latest.types.values()} if latest is not None else set()
    asked |= {max(known)} if known else set()
    for schema_id in sorted(asked):
        schema = known[schema_id]
        if schema.text and (found := registry.find(schema.topic, schema.schema)) != schema_id:
            raise UsageError(
                f"the schema registry has {'no id' if found is None else f'id {found}'} for "
                f"{schema.meaning}, but in the ledger it has id {schema_id}: the registry was "
                "recreated, or restored from an older copy. Restore its newest copy, or run "
                "`hourmark types repair`. Nothing was registered"
            )


def _registered(
    registry: RegistryClient, known: Mapping[int, KnownSchema], wanted: Sequence[KnownSchema]
) -> dict[str, int]:
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
