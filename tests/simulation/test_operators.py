"""Histories of operators, and that each planted fault is found."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.simulation.operators import Broken, World
from tests.support.rules_servers import MemoryRegistry

from hourmark.rules.revision import RulesBook
from hourmark_declare import apply as declare_apply
from hourmark_delivery_service.parsing import zones
from hourmark_etl.ledger import rules as ledger_rules
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, replace_rows
from hourmark_etl.ledger.digests import with_digest

pytestmark = pytest.mark.slow

HISTORIES = int(os.environ.get("HOURMARK_OPERATORS", "15"))
SEED = int(os.environ.get("HOURMARK_SEED", str(random.randrange(1 << 32))))
STEPS = 60


def history(folder: Path, seed: int) -> World:
    """One history; Broken says which."""
    world = World(folder, seed)
    try:
        with mock.patch.object(zones, "FOLDER", world.zones):
            for _ in range(STEPS):
                world.step()
            world.settle()
    except Broken as error:
        raise Broken(
            f"HOURMARK_SEED={seed} HOURMARK_OPERATORS=1: {error}\nafter {' '.join(world.done)}"
        ) from error
    finally:
        world.end()
    return world


@pytest.mark.parametrize(
    "histories", [HISTORIES, pytest.param(8 * HISTORIES, marks=pytest.mark.long)]
)
def test_ids_hours_and_readability_hold_or_the_operation_is_refused(
    tmp_path: Path, histories: int
) -> None:
    sent = refused = 0
    for seed in range(SEED, SEED + histories):
        world = history(tmp_path, seed)
        sent, refused = sent + len(world.sent), refused + world.refused
    assert sent > 2 * histories, "histories without ranges show nothing"
    assert refused or histories < 10


def _in_order_only(patch: pytest.MonkeyPatch) -> None:
    """A revision whose types come after it is given up."""
    add = RulesBook.add

    def forgetful(book: RulesBook, key: str, value: str) -> None:
        if key.startswith("rules/"):
            types = json.loads(value)["types"]
            if any(
                f"type/{name}/{entry['digest']}" not in book.records
                for name, entry in types.items()
            ):
                return
        add(book, key, value)

    patch.setattr(RulesBook, "add", forgetful)


def _types_repeated(patch: pytest.MonkeyPatch) -> None:
    """Each application publishes all its types again, as it once did."""

    def repeat(outside: Any) -> int:
        latest = outside.ledger.book().latest
        for topic in outside.topics:
            topic.publish(latest.records())
        return len(latest.records())

    patch.setattr(declare_apply, "_publish_missing", repeat)
    _in_order_only(patch)


def _registry_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Whatever id the registry gives is taken, whatever it stood for."""

    def believed(registry: MemoryRegistry, _: Any, wanted: Any) -> dict[str, int]:
        return {
            schema.event_type: registry.register(schema.topic, schema.schema) for schema in wanted
        }

    def put_whatever(connection: Any, schemas: Any) -> None:
        for schema_id, s in schemas:
            row = {
                "schema_id": schema_id,
                "type": s.event_type,
                "fingerprint": s.fingerprint,
                "schema": s.text,
            }
            replace_rows(
                connection, tables.schemas, ["schema_id"], [with_digest(tables.schemas, row)]
            )

    def last_meaning(book: RulesBook) -> dict[int, Any]:
        return {
            version.schema_id: version
            for rules in book.revisions
            for version in rules.types.values()
        }

    patch.setattr(declare_apply, "_registered", believed)
    patch.setattr(declare_apply, "_check_known", lambda *_: None)
    patch.setattr(ledger_rules, "put_schemas", put_whatever)
    patch.setattr(RulesBook, "schemas", last_meaning)
    patch.setattr(RulesBook, "check_schema_ids", lambda *_: None)
    patch.setattr(declare_apply, "repair_registry", lambda *_: {})


def _last_operator_wins(patch: pytest.MonkeyPatch) -> None:
    """No comparison with what is in force."""
    put_revision = ledger_rules.LedgerRules.put
    patch.setattr(
        ledger_rules.LedgerRules,
        "put",
        lambda self, rules, after, *more: put_revision(self, rules, self.book().latest, *more),
    )


def _frontiers_of_the_last(patch: pytest.MonkeyPatch) -> None:
    """Frontier rows are put in a transaction of their own, after the revision, so a crash or
    another operator comes between.
    """
    patch.setattr(ledger_rules, "put_frontiers", lambda *_: [])


def _zones_of_today(patch: pytest.MonkeyPatch) -> None:
    """Whatever the revision names, a service reads times with the newest zone data that it has."""
    patch.setattr(
        "hourmark_delivery_service.parsing.time_and_host.load_zone",
        lambda name, _: zones.load_zone(name, max(zones.zone_versions())),
    )


@pytest.mark.parametrize(
    "plant",
    [
        _zones_of_today,
        _types_repeated,
        _registry_is_believed,
        _last_operator_wins,
        _frontiers_of_the_last,
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Broken):
        for seed in range(60):
            history(tmp_path, seed)


def test_revisions_are_of_one_sequence(tmp_path: Path) -> None:
    history(tmp_path, 1)
    with Database(f"sqlite:///{tmp_path}/ledger-1.sqlite") as database:
        revisions = ledger_rules.LedgerRules(database).book().revisions
    assert len(revisions) > 3
    assert [r.sequence for r in revisions] == list(range(1, len(revisions) + 1))
