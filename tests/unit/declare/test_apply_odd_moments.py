"""`types apply` and `types repair`: older ledgers, strange topics, registries that lost something
or spell otherwise.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert
from tests.support.revisions import (
    APP,
    CLICK,
    HOUR,
    LONG,
    OLD,
    OTHER,
    VIEW,
    WEB,
    declared,
    encoded,
    of_newer_software,
    revision,
)
from tests.support.rules_servers import MemoryRegistry, MemoryTopic, outside

from hourmark.avro.framing import Schema, fingerprint
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.errors import Finding, HourmarkError, Unavailable, UsageError
from hourmark.kafka.topic_names import AUDIT
from hourmark.records import audit
from hourmark.rules import rules_topic
from hourmark.rules.event_types import DEAD_LETTERS, EventType, Source
from hourmark.rules.line_rule import DECLARED
from hourmark.rules.revision import Rules, RulesBook, TypeVersion
from hourmark_declare.apply import (
    ApplyResult,
    ApplyTargets,
    RepairResult,
    apply_declarations,
    repair_rules,
)
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontier_rows import find_sources_in_revisions, find_sources_of_type
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.rules import LedgerRules

At = Callable[[str], None] | None


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as made:
        yield made


@pytest.fixture
def ledger(database: Database) -> LedgerRules:
    return LedgerRules(database)


class Site:
    """An edge with its ledger, its registry and its topic of rules."""

    def __init__(
        self,
        ledger: LedgerRules,
        registry: MemoryRegistry | None = None,
        topic: MemoryTopic | None = None,
    ) -> None:
        self.ledger, self.registry, self.topic = (
            ledger,
            registry or MemoryRegistry(),
            topic or MemoryTopic(),
        )

    def outside(self, at: At = None, **changes: Any) -> ApplyTargets:
        """What declarations are applied to."""
        return dataclasses.replace(outside(self.ledger, self.registry, self.topic, at), **changes)

    def apply(
        self, *types: EventType, sources: Sequence[Source] = (APP,), at: At = None, **may: Any
    ) -> ApplyResult:
        """These types and dead letters."""
        return apply_declarations(self.outside(at), declared(*types, sources=sources), HOUR, **may)

    def repair(self, at: At = None, **may: bool) -> RepairResult:
        """Write again what was lost."""
        return repair_rules(self.outside(at), HOUR, **may)

    @property
    def latest(self) -> Rules:
        """What is in force, as the ledger says."""
        latest = self.ledger.book().latest
        assert latest is not None
        return latest


@pytest.fixture
def site(ledger: LedgerRules) -> Site:
    """The type `click` is applied."""
    made = Site(ledger)
    made.apply(CLICK)
    return made


def changed(rules: Rules, **changes: Any) -> Rules:
    """As somebody else publishes it."""
    return dataclasses.replace(rules, published=None, **changes)


def stranger(rules: Rules, sequence: int, other: TypeVersion) -> Rules:
    """A revision of another ledger: dead letters, and a type that is not ours."""
    types = {"dead-letters": rules.types["dead-letters"], "other": other}
    return changed(rules, sequence=sequence, types=types, sources={})


def huge() -> EventType:
    symbols = [f"SYMBOL_{n:06d}" for n in range(40_000)]
    fields = [{"name": "e", "type": {"type": "enum", "name": "E", "symbols": symbols}}]
    return EventType.model_validate(
        {"name": "huge", "fields": fields}, context=DECLARED
    )  # `types check` takes it


def test_what_the_topic_may_hold_can_be_produced() -> None:
    """kafka.max_message_bytes is 8 MiB and the topic's; the producer of rules has librdkafka's
    1,000,000.
    """
    version = TypeVersion(huge(), 3)
    assert 1_000_000 < len(version.text) < Config().kafka.max_message_bytes
    with pytest.raises(Unavailable):  # there is no broker: all that is expected
        rules_topic.publish_rules(
            KafkaCluster(bootstrap="127.0.0.1:1"),
            [(version.key, version.text)],
            8 << 20,
            timeout_s=1.0,
        )


def test_declarations_that_cannot_be_published_are_refused_before_anything_is_put(
    site: Site,
) -> None:
    registered, latest = dict(site.registry.by_id), site.latest
    with pytest.raises(
        UsageError, match=r"type/huge/\w+ has \d+ bytes, but kafka.max_message_bytes is 1000000"
    ):
        apply_declarations(site.outside(record_bytes_max=1_000_000), declared(CLICK, huge()), HOUR)
    assert (site.registry.by_id, site.latest) == (registered, latest)
    site.apply(CLICK, huge())


def test_hours_wait_for_the_sources_of_a_revision_that_the_ledger_took_from_the_topic(
    database: Database, site: Site
) -> None:
    """An older copy of the ledger; `types repair`, as docs/operate/back-up-and-restore.md says."""
    first = site.latest
    ids = {name: t.schema_id for name, t in first.types.items()} | {
        "view": site.registry.register("events.view", VIEW.schema())
    }
    types = {t.name: TypeVersion(t, ids[t.name]) for t in (DEAD_LETTERS, CLICK, VIEW)}
    second = changed(first, sequence=2, types=types, sources={"app": APP, "web": WEB})
    site.topic.publish(second.records())
    repaired = site.repair(may_adopt=True)
    assert repaired.revision == second.id, "in force, says the ledger"
    awaited = {f.event_type: f.sources for f in frontiers(database, HOUR.length_s)}
    for name in second.types:
        assert find_sources_of_type(name, second.sources.values()) <= awaited.get(
            name, frozenset()
        ), name


def test_what_was_sent_under_a_revision_from_the_topic_is_awaited_though_the_next_one_drops_the_source(
    database: Database, site: Site
) -> None:
    """No host of `web` was ever heard of by this copy: the rule of `put_frontiers` is to go on
    waiting for it.
    """
    site.topic.publish(changed(site.latest, sequence=2, sources={"app": APP, "web": WEB}).records())
    site.apply(CLICK, may_remove=True, may_adopt=True)
    awaited = {f.event_type: f.sources for f in frontiers(database, HOUR.length_s)}
    assert awaited["click"] == {"app", "web"}


def test_a_rebuilt_ledger_waits_for_sources_that_an_earlier_revision_lets_carry_a_type() -> None:
    """Nobody was heard of by the new ledger; ranges under revision 1 may be spooled at hosts of
    `web`.
    """
    book = RulesBook(
        [*revision(1, CLICK, sources=(APP, WEB)).records(), *revision(2, CLICK).records()]
    )
    assert find_sources_in_revisions("click", book.revisions) == {"app", "web"}


APPLY_OR_REPAIR = pytest.mark.parametrize(
    "operate",
    [lambda site: site.apply(CLICK, VIEW), lambda site: site.repair(may_adopt=True)],
    ids=["apply", "repair"],
)


@APPLY_OR_REPAIR
def test_a_revision_of_newer_software_in_the_topic_stops_with_words_or_not_at_all(
    site: Site, operate: Callable[[Site], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.topic.publish([of_newer_software(site.latest, 2)])
    records = encoded([record for _, record in site.topic.log])
    monkeypatch.setattr(rules_topic, "read_topic", lambda *_, **__: records)
    monkeypatch.setattr(site.topic, "read", lambda: rules_topic.read_rules(KafkaCluster()))
    with contextlib.suppress(HourmarkError):  # and not a ValueError with a traceback
        operate(site)


def test_a_ledger_row_of_newer_software_is_not_called_damaged(
    ledger: LedgerRules, database: Database
) -> None:
    """Two operators, two versions: the older one is told that a disk changed the ledger, and to
    restore or rebuild it.
    """
    first = revision(1, CLICK)
    ledger.put(first, None, HOUR)
    key, value = of_newer_software(first, 2)
    with database.transaction() as connection:  # as the newer software's `put` does
        connection.execute(insert(tables.rules), [{"key": key, "value": value}])
    try:
        ledger.book()
    except HourmarkError as error:
        assert "disk" not in str(error) and "rebuild" not in str(error), str(error)


def test_a_refused_application_leaves_a_registry_that_can_be_repaired(site: Site) -> None:
    """An older copy lacks a retired type's id: nobody asks for that one, and it is given to the
    next.
    """
    copy = len(site.registry.by_id)
    site.apply(CLICK, VIEW)
    site.apply(CLICK, may_remove=True)
    site.registry.lose(keep=copy)
    before = dict(site.registry.by_id)
    with pytest.raises((UsageError, Finding)):
        site.apply(CLICK, OTHER)
    assert site.registry.by_id == before, (
        "refused, but first it gave the lost id to another schema: `types repair` now says never"
    )


def test_an_id_of_audit_records_never_becomes_a_types(site: Site) -> None:
    """A running service asked once, at its start.

    The registry lost its last writes; everything the rules know is still there.
    """
    site.registry.lose(keep=2)
    with pytest.raises(UsageError, match=r"no id for hourmark.audit .* in the ledger it has id 3"):
        site.apply(CLICK, VIEW)
    site.repair()
    assert site.apply(CLICK, VIEW).schema_ids["view"] > 4


def test_repair_gives_audit_records_their_id_again(site: Site) -> None:
    """docs/operate/back-up-and-restore.md: each schema gets the id it had."""
    site.apply(CLICK, VIEW)
    before = site.registry.find(AUDIT, audit.SCHEMA)
    site.registry.lose()
    site.repair(may_adopt=True)
    assert site.registry.find(AUDIT, audit.SCHEMA) == before


def test_the_topic_of_rules_is_repaired_while_the_registry_is_away(site: Site) -> None:
    site.topic.lose()

    def away(step: str) -> None:
        if step.startswith("registry."):
            raise Unavailable("the schema registry does not answer")

    with pytest.raises(Unavailable):
        site.repair(away)
    assert site.topic.read().latest is not None, (
        "services stay down for a registry that they do not need"
    )


def test_the_topic_of_rules_is_repaired_though_a_topic_of_events_is_not_as_declared(
    site: Site,
) -> None:
    """In an incident retention.ms is raised by Kafka's own tools."""
    site.topic.lose()

    def other_settings(_: Sequence[EventType]) -> list[str]:
        raise Finding(
            "topics of the edge cluster differ from their declaration:\n  events.click: "
            "retention.ms = 2, not 1"
        )

    with pytest.raises(Finding):
        repair_rules(site.outside(create_topics=other_settings), HOUR)
    assert site.topic.read().latest is not None


def java(schema: Any, around: str = "") -> Any:
    """As Avro's Java library writes a schema it has read (Schema.toString, seen with 1.12.1):
    Confluent keeps that.
    """
    if isinstance(schema, list):
        return [java(branch, around) for branch in schema]
    if not isinstance(schema, dict):
        return schema.removeprefix(f"{around}.") if isinstance(schema, str) and around else schema
    made = {
        key: value
        for key, value in schema.items()
        if not (key == "order" and value == "ascending") and (key, value) != ("aliases", [])
    }
    if set(made) == {"type"} and made["type"] in (
        "string",
        "long",
        "int",
        "bytes",
        "boolean",
        "float",
        "double",
        "null",
    ):
        return made["type"]
    if made.get("type") in ("record", "enum", "fixed"):
        space, _, name = made["name"].rpartition(".")
        space = space or made.get("namespace", around)
        made["name"] = name
        made.pop("namespace", None)
        if space != around:
            made["namespace"] = space
        around = space
    for key in ("type", "items", "values"):
        if key in made:
            made[key] = java(made[key], around)
    if isinstance(made.get("fields"), list):
        made["fields"] = [java(field, around) for field in made["fields"]]
    return made


class ConfluentRegistry(MemoryRegistry):
    def register(self, topic: str, schema: Schema) -> int:
        return super().register(topic, java(schema))

    def find(self, topic: str, schema: Schema) -> int | None:
        return super().find(topic, java(schema))


def click(field: dict[str, Any]) -> EventType:
    """With this field, however it is spelled."""
    return EventType.model_validate({"name": "click", "fields": [field]}, context=DECLARED)


PLAIN = {"name": "s", "type": "string"}
SPELLINGS: dict[str, Any] = {
    "an object": {"name": "s", "type": {"type": "string"}},
    "an order": {"name": "s", "type": "string", "order": "ascending"},
    "a full name": {
        "name": "s",
        "type": {"type": "enum", "name": "hourmark.events.E", "symbols": ["A"]},
        "default": "A",
    },
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_repair_changes_nothing_where_a_confluent_registry_is_whole(
    ledger: LedgerRules, spelling: str
) -> None:
    site = Site(ledger, ConfluentRegistry())
    for _ in range(2):
        site.apply(click(SPELLINGS[spelling]))
    assert site.repair(may_adopt=True).registered == {}


@pytest.mark.parametrize("spelling", ["an object", "an order"])
def test_a_declaration_may_be_spelled_otherwise_with_a_confluent_registry(
    ledger: LedgerRules, spelling: str
) -> None:
    site = Site(ledger, ConfluentRegistry())
    site.apply(click(PLAIN))
    registered = dict(site.registry.by_id)
    site.apply(click(SPELLINGS[spelling]))
    assert site.registry.by_id == registered


def test_nothing_to_change_costs_one_question_a_type(ledger: LedgerRules) -> None:
    site = Site(ledger)
    types = [EventType(name=f"t{n}", fields=[LONG]) for n in range(50)]
    site.apply(*types, sources=())
    asked: Counter[str] = Counter()
    site.apply(*types, sources=(), at=lambda step: asked.update([step]))
    assert asked["registry.find"] == 53, "each type, dead letters and both control topics once"


def test_of_two_ledgers_on_one_edge_the_second_is_not_told_that_it_is_in_force(
    tmp_path: Path,
) -> None:
    """A second root, or yesterday's ledger recreated beside: compare-and-set is each
    ledger's own.
    """
    with Database(f"sqlite:///{tmp_path}/a") as a, Database(f"sqlite:///{tmp_path}/b") as b:
        first = Site(LedgerRules(a))
        second = Site(LedgerRules(b), first.registry, first.topic)
        for site in (first, second):
            site.apply(CLICK)
        came: list[str] = []

        def meanwhile(step: str) -> None:
            if step == "ledger.put" and not came:
                came.append(second.apply(CLICK, sources=(APP, WEB)).revision)
                came.append(second.apply(CLICK, VIEW, may_remove=True).revision)

        with pytest.raises(
            Finding,
            match=r"services use 3-.*, which another ledger published; an edge cluster must have only one ledger",
        ):
            first.apply(CLICK, sources=(APP, WEB, OLD), at=meanwhile)
        with pytest.raises(Finding, match="revisions that the ledger does not contain: "):
            first.apply(CLICK, may_remove=True)


@APPLY_OR_REPAIR
def test_where_the_topic_contradicts_the_ledger_the_message_says_a_way_out(
    site: Site, operate: Callable[[Site], object]
) -> None:
    site.topic.publish(stranger(site.latest, 1, TypeVersion(OTHER, 1)).records())
    with pytest.raises(Finding) as told:
        operate(site)
    assert "`hourmark types repair` says what" not in str(told.value) and "hourmark.types" in str(
        told.value
    ), str(told.value)


def test_a_revision_that_waits_counts_in_the_sequence(site: Site) -> None:
    """Else the operator's revision 2 is overtaken by 9 in the moment in which its last type
    arrives.
    """
    first = site.latest
    ninth = changed(first, sequence=9, types={**first.types, "view": TypeVersion(VIEW, 5)})
    site.topic.publish([(f"rules/{ninth.id}", ninth.text)])
    with pytest.raises(Finding, match="revisions that the ledger does not contain: 9-"):
        site.apply(CLICK, sources=(APP, WEB))
    applied = site.apply(CLICK, sources=(APP, WEB), may_adopt=True)
    site.topic.publish([(ninth.types["view"].key, ninth.types["view"].text)])
    latest = site.topic.read().latest
    assert latest is not None and latest.id == applied.revision and latest.sequence == 10


def test_a_ledger_takes_no_revisions_of_another_site(site: Site) -> None:
    """`types repair` once with the configuration of the test site (one registry for all sites),
    then with the right one.
    """
    first, test_site = site.latest, Site(site.ledger, site.registry)
    other = TypeVersion(OTHER, site.registry.register("events.other", OTHER.schema()))
    test_site.topic.publish(stranger(first, 9, other).records())
    with pytest.raises(Finding, match="If they belong to another site"):
        test_site.repair()
    site.repair()
    latest = site.topic.read().latest
    assert latest is not None
    assert latest.id == first.id, (
        f"services of this site now use {latest.id}, without the type click"
    )


def test_the_confluent_registry_of_this_file_echoes_a_plain_schema_as_it_was() -> None:
    plain = click(PLAIN).schema()
    assert fingerprint(java(plain)) == fingerprint(plain)


def test_rules_are_published_at_every_edge_and_again_where_one_was_away(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    further = MemoryTopic()
    both = site.outside(topics=[site.topic, further])
    with monkeypatch.context() as patch, pytest.raises(Unavailable):
        patch.setattr(further, "publish", away)
        apply_declarations(both, declared(CLICK, VIEW), HOUR)
    assert further.read().latest is None and site.topic.read().latest == site.latest
    apply_declarations(both, declared(CLICK, VIEW), HOUR)
    assert further.read().records == site.topic.read().records


def away(_: object) -> None:
    raise Unavailable("the west is away")
