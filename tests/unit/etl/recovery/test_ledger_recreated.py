"""A ledger that was made in place of a lost one is filled by a rebuild, while it holds nothing of
its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from tests.support.ledger_life import FIRST, Life
from tests.support.records import position, tailer
from tests.support.rules import put_rules

from hourmark.config.groups import EtlSettings
from hourmark.config.loading import Config
from hourmark.errors import Finding, UsageError
from hourmark.records.hours import Hour
from hourmark.rules.event_types import EventType
from hourmark.rules.revision import RulesBook
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import insert_new_positions
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.hosts.reporters import put_reports
from hourmark_etl.ledger.overrides import put_override
from hourmark_etl.ledger.rules import LedgerRules
from hourmark_etl.recovery.rebuild import rebuild
from hourmark_etl.recovery.rebuild_result import RebuildResult

SECOND = FIRST.next()


def content(database: Database) -> dict[str, Any]:
    """Of every table, but for the commit number, which every look in a transaction counts up."""
    with database.reading() as connection:
        found = {
            t.name: sorted(map(tuple, connection.execute(select(t))), key=repr)
            for t in tables.metadata.sorted_tables
        }
    return found | {"meta": [row for row in found["meta"] if row[0] != "commit"]}


def started_over(life: Life, url: str, first: Hour = SECOND) -> Database:
    """A ledger that `types repair --adopt` and `types apply` made after the loss, with a type more;
    the topic has its rules.
    """
    made = Database(url)
    LedgerRules(made).adopt(RulesBook(life.rules.records()), first)
    new = life.declared[0].model_copy(update={"name": "new"})
    put_rules(Config(etl=EtlSettings(ledger=url)), [*life.declared, new], life.sources, first)
    return made


def filled(life: Life, made: Database) -> RebuildResult:
    """The same, where the topic has the rules of this ledger."""
    return rebuild(
        dataclasses.replace(life.outside(), rules=LedgerRules(made).book()), made, lambda _: None
    )


@pytest.mark.slow
def test_a_ledger_that_types_apply_alone_has_filled_is_filled_anew(
    life: Life, tmp_path: Path
) -> None:
    target = Database(f"sqlite:///{tmp_path}/empty.sqlite")
    life.take_in("click", FIRST, 5)
    life.close("click")
    made = started_over(life, f"sqlite:///{tmp_path}/made-anew.sqlite")
    rules = LedgerRules(made).book()
    rebuild(dataclasses.replace(life.outside(), rules=rules), target, lambda _: None)
    assert filled(life, made).buckets == 1
    for name in ("frontiers", "buckets", "positions", "meta", "rules"):
        assert content(made)[name] == content(target)[name], "as into an empty one"
    assert "new" in rules.revisions[-1].types
    made.close()
    target.close()


def change_frontier(made: Database, **changes: object) -> None:
    with made.transaction() as connection:
        connection.execute(
            update(tables.frontiers).where(tables.frontiers.c.type == "new").values(**changes)
        )


def say(made: Database) -> None:
    with made.transaction() as connection:
        put_reports(connection, [(tailer(),)])


# Something of its own, in a ledger that was begun anew.
HELD: dict[str, Callable[[Life, Database, str], object]] = {
    "a frontier that has moved": lambda life, made, url: change_frontier(made, hour=SECOND.end_s),
    "a sealed hour": lambda life, made, url: change_frontier(made, state="sealed"),
    "an override": lambda life, made, url: put_override(
        made, "new", SECOND, "ticket 17", "ann", SECOND.end_ms
    ),
    "a position": lambda life, made, url: insert_new_positions(
        made, made.acquire("consumer:default"), [position(topic="events.new")]
    ),
    "a revision of its own": lambda life, made, url: put_rules(
        Config(etl=EtlSettings(ledger=url)),
        life.declared,
        [],
        SECOND,
    ),
    "a report": lambda life, made, url: say(made),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", HELD)
def test_a_ledger_that_holds_anything_of_its_own_is_never_filled(
    life: Life, tmp_path: Path, what: str
) -> None:
    life.close("click")
    url = f"sqlite:///{tmp_path}/made-anew.sqlite"
    made = started_over(life, url)
    outside = dataclasses.replace(life.outside(), rules=LedgerRules(made).book())
    HELD[what](life, made, url)
    before = content(made)
    with pytest.raises(UsageError, match=r"not empty .*--into"):
        rebuild(outside, made, lambda _: None)
    assert content(made) == before
    made.close()


def test_rules_of_a_ledger_recreated_that_contradict_the_markers_stop_a_rebuild(
    life: Life, tmp_path: Path
) -> None:
    life.take_in("click", FIRST, 1)
    life.close("click")
    url = f"sqlite:///{tmp_path}/made-anew.sqlite"
    other = EventType(name="click", fields=[{"name": "m", "type": "string"}])
    put_rules(Config(etl=EtlSettings(ledger=url)), [other], life.sources, SECOND)
    made = Database(url)
    with pytest.raises(Finding, match="schema id 1 identifies click"):
        filled(life, made)
    made.close()
