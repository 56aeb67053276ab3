"""Rules in the ledger: who comes first, what an id means, what is put together or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import select, update
from tests.support.revisions import APP, CLICK, HOUR, VIEW, WEB, revision

from hourmark.errors import Finding, UsageError
from hourmark.rules.event_types import EventType, Source
from hourmark.rules.revision import Rules, RulesBook, TypeVersion
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.rules import LedgerRules, read_bucket_formats
from hourmark_etl.ledger.schemas import SchemaCheck, known_schemas, load_schema_checks


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as made:
        yield made


@pytest.fixture
def ledger(database: Database) -> LedgerRules:
    return LedgerRules(database)


def begun(ledger: LedgerRules) -> Rules:
    """With revision 1."""
    first = revision(1, CLICK)
    ledger.put(first, None, HOUR)
    return first


def sources_of(database: Database, event_type: str) -> frozenset[str]:
    return frozenset(
        next(f for f in frontiers(database, 3600) if f.event_type == event_type).sources
    )


def test_rules_schemas_and_frontiers_stand_together(
    database: Database, ledger: LedgerRules
) -> None:
    first = revision(1, CLICK)
    assert ledger.put(first, None, HOUR) == ["click", "dead-letters"]
    assert ledger.book().latest == first
    checks: dict[int, SchemaCheck] = {}
    load_schema_checks(database, checks)
    assert {schema_id: of.event_type for schema_id, of in checks.items()} == {
        1: "dead-letters",
        2: "click",
    }
    assert known_schemas(database)[2].meaning == first.types["click"].meaning
    assert sources_of(database, "click") == {"app"}
    assert ledger.put(first, first, HOUR) == [], "it can be repeated"


def test_the_second_of_two_operators_is_refused_and_told_what_changed(
    database: Database, ledger: LedgerRules
) -> None:
    """Both began from revision 1: one adds a source, the other a type."""
    first = begun(ledger)
    ledger.put(revision(2, CLICK, sources=(APP, WEB)), first, HOUR)
    with pytest.raises(
        UsageError, match=r"another `types apply` was faster: revision 2-.* \(source web added\)"
    ):
        ledger.put(revision(2, CLICK, VIEW), first, HOUR)
    assert sources_of(database, "click") == {"app", "web"}
    assert "view" not in {f.event_type for f in frontiers(database, 3600)}


def test_of_many_operators_at_once_one_is_first(ledger_url: str) -> None:
    with Database(ledger_url) as database:
        first = begun(LedgerRules(database))
    taken: list[str] = []

    def operator(n: int) -> None:
        mine = revision(2, CLICK, sources=(APP, Source(name=f"s{n}", types=["click"])))
        with Database(ledger_url) as own:
            try:
                LedgerRules(own).put(mine, first, HOUR)
            except UsageError:
                return
            taken.append(mine.id)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(operator, range(6)))
    with Database(ledger_url) as database:
        latest = LedgerRules(database).book().latest
        assert latest is not None
        assert taken == [latest.id]
        assert sources_of(database, "click") == set(latest.sources), (
            "frontier rows and revision moved together"
        )


def test_an_id_never_gets_a_second_meaning_and_nothing_of_such_a_revision_is_put(
    database: Database, ledger: LedgerRules
) -> None:
    first = begun(ledger)
    grown = EventType(
        name="click", fields=[*CLICK.fields, {"name": "m", "type": ["null", "string"]}]
    )
    for other in (grown, VIEW):
        wrong = dataclasses.replace(
            first, sequence=2, types={**first.types, other.name: TypeVersion(other, 2)}
        )
        with pytest.raises(Finding, match="schema id 2 identifies click"):
            ledger.put(wrong, first, HOUR)
    assert ledger.book().latest == first
    assert {f.event_type for f in frontiers(database, 3600)} == {"click", "dead-letters"}


def test_what_only_the_topic_has_is_taken_unless_it_contradicts(ledger: LedgerRules) -> None:
    first, second = begun(ledger), revision(2, CLICK, VIEW)
    assert ledger.adopt(RulesBook([*first.records(), *second.records()]), HOUR) == 2
    assert ledger.book().latest == second
    assert ledger.adopt(RulesBook(second.records()), HOUR) == 0
    foreign = dataclasses.replace(second, sequence=9, types={"view": TypeVersion(VIEW, 2)})
    with pytest.raises(Finding, match="schema id 2 identifies click"):
        ledger.adopt(RulesBook(foreign.records()), HOUR)
    assert ledger.book().latest == second


def test_a_source_without_a_report_yet_stays_awaited(
    database: Database, ledger: LedgerRules
) -> None:
    """The driver was down: reports of its hosts may be on their way, and with them promises of the
    type.
    """
    first = revision(1, CLICK, VIEW, sources=(APP, Source(name="old", types=["click", "view"])))
    ledger.put(first, None, HOUR)
    ledger.put(
        revision(2, CLICK, VIEW, sources=(APP, Source(name="old", types=["view"]))), first, HOUR
    )
    assert sources_of(database, "click") == {"app", "old"}


def test_damaged_rules_are_named(database: Database, ledger: LedgerRules) -> None:
    begun(ledger)
    key = database.fetch(
        select(tables.rules.c.key).where(tables.rules.c.key.like("type/click/%"))
    ).scalar()
    with database.transaction() as connection:
        connection.execute(update(tables.rules).where(tables.rules.c.key == key).values(value="{}"))
    with pytest.raises(DamagedRow, match=f"rules.*{key}"):
        ledger.book()


def test_the_latest_revision_states_the_format_of_buckets(
    database: Database, ledger: LedgerRules
) -> None:
    assert read_bucket_formats(database, ["click"], "avro+parquet") == {"click": "avro+parquet"}
    first = begun(ledger)
    assert read_bucket_formats(database, ["click", "gone"], "avro") == {
        "click": "avro",
        "gone": "avro",
    }
    with_parquet = CLICK.model_copy(update={"format": "avro+parquet"})
    second = revision(2, with_parquet, VIEW)
    ledger.put(second, first, HOUR)
    formats = read_bucket_formats(database, ["click", "view"], "avro")
    assert formats == {"click": "avro+parquet", "view": "avro"}
    ledger.put(revision(3, CLICK.model_copy(update={"format": "avro"}), VIEW), second, HOUR)
    formats = read_bucket_formats(database, ["click", "view"], "avro+parquet")
    assert formats == {"click": "avro", "view": "avro+parquet"}


@pytest.mark.parametrize(("pattern", "damaged"), [("type/click/%", 1), ("rules/%", 2)])
def test_damaged_rules_do_not_silently_change_the_format(
    database: Database, ledger: LedgerRules, pattern: str, damaged: int
) -> None:
    ledger.put(revision(1, CLICK, VIEW), None, HOUR)
    with database.transaction() as connection:
        connection.execute(
            update(tables.rules).where(tables.rules.c.key.like(pattern)).values(value="{}")
        )
    formats = read_bucket_formats(database, ["click", "view"], "avro")
    assert sum(isinstance(of, DamagedRow) for of in formats.values()) == damaged
    assert isinstance(formats["click"], DamagedRow)


def test_a_type_without_a_format_is_published_as_before() -> None:
    assert "format" not in CLICK.model_dump(mode="json")
    with_parquet = CLICK.model_copy(update={"format": "avro+parquet"})
    assert with_parquet.model_dump(mode="json")["format"] == "avro+parquet"
    assert EventType.model_validate(with_parquet.model_dump(mode="json")) == with_parquet
