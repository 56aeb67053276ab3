"""A row of the ledger that changed by itself is a finding, and leads to no bucket that is proved
and lacks something.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
from sqlalchemy import ColumnElement, Table, select, update
from tests.support.closing import (
    frontier,
    grade,
    manifest,
    poll,
    report,
    send,
    settle,
    until,
    wait_of,
    with_engine_alone,
)
from tests.support.simulator.truth import FIRST_HOUR, TYPES
from tests.support.simulator.world import World
from tests.support.tiers import representative

from hourmark.errors import HourmarkError
from hourmark_etl.closing.cut.cut import Waiting
from hourmark_etl.closing.publishing import Publisher
from hourmark_etl.errors import EtlStop
from hourmark_etl.ledger import batches, digests, tables
from hourmark_etl.ledger import frontiers as frontiers_module
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import find_damaged_rows
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.staged import listings
from hourmark_etl.model import HourState

DIGESTED: Final = (
    tables.positions,
    tables.frontiers,
    tables.staged_files,
    tables.groups,
    tables.audit_groups,
)


def staged(world: World) -> None:
    """Two types with promised events, their hour ended, all staged."""
    with_engine_alone(world)
    send(world, ["click", "view"])
    send(world, ["click"])
    settle(world)
    until(world, FIRST_HOUR)
    report(world)


def flipped(value: Any) -> Iterator[Any]:
    """The value with each of its bytes changed in turn, in one bit."""
    if isinstance(value, int):
        yield from (value ^ (1 << bit) for bit in (0, 1, 7, 12, 33, 60))
    elif isinstance(value, str):
        yield from (
            value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :] for at in range(len(value))
        )
    elif isinstance(value, bytes):
        yield from (
            value[:at] + bytes([value[at] ^ 16]) + value[at + 1 :] for at in range(len(value))
        )


def first_row(world: World, table: Table, *conditions: ColumnElement[bool]) -> dict[str, Any]:
    return dict(world.database.fetch(select(table).where(*conditions)).mappings().first() or {})


def put(database: Database, table: Table, row: Any, column: str, value: Any) -> None:
    own = [c == row[c.name] for c in table.primary_key if c.name != column]
    with database.transaction() as connection:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        changed = connection.execute(
            update(table).where(*own, table.c[column] == row[column]).values({column: value})
        )
        assert changed.rowcount == 1


@pytest.mark.slow
@pytest.mark.parametrize("table", DIGESTED, ids=lambda t: t.name)
def test_every_changed_byte_of_a_digested_row_is_found_and_named(
    world: World, table: Table
) -> None:
    staged(world)
    assert find_damaged_rows(world.database) == []
    row = first_row(world, table)
    changes = 0
    for column in table.columns:
        if column.info.get(tables.UNDIGESTED):
            continue
        values = [*flipped(row[column.name])]
        for value in values[:: 1 + len(values) // 10] or ["[]"]:
            put(world.database, table, row, column.name, value)
            (found,) = {
                (d.table, str(d))
                for d in find_damaged_rows(world.database)
                if d.table == table.name
            }
            assert "`hourmark ledger check`" in found[1] and "restore the newest copy" in found[1]
            put(world.database, table, row | {column.name: value}, column.name, row[column.name])
            changes += 1
    assert find_damaged_rows(world.database) == [] and changes >= 20


UNSEEN: Final = (("audit_groups", "type"), ("audit_groups", "hour"))
OVERLOOKED: Final = (
    (tables.groups, "bytes"),
    (tables.audit_groups, "promised"),
    (tables.frontiers, "settled_next"),
)
CLOSING: Final = [
    (t, c.name)
    for t in (tables.groups, tables.audit_groups, tables.frontiers)
    for c in t.columns
    if c.name != "id"
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "column"), representative(CLOSING, 8), ids=lambda x: getattr(x, "name", x)
)
def test_a_changed_row_closes_nothing_falsely_and_holds_its_own_type_alone(
    world: World, table: Table, column: str
) -> None:
    changed_row(world, table, column)


@pytest.mark.parametrize(("table", "column"), OVERLOOKED, ids=lambda x: getattr(x, "name", x))
def test_the_checker_notices_digests_that_are_switched_off(
    world: World, monkeypatch: pytest.MonkeyPatch, table: Table, column: str
) -> None:
    """A planted fault: no digest is compared."""
    for module in (digests, frontiers_module, listings, batches):
        monkeypatch.setattr(module, "check_digest", lambda *_, **__: None)
    with pytest.raises(AssertionError):
        changed_row(world, table, column)


def changed_row(world: World, table: Table, column: str) -> None:
    staged(world)
    row = dict(
        world.database.fetch(select(table).where(table.c.type == "click")).mappings().all()[-1]
    )
    if column == "file_id":
        value: Any = (
            max(world.database.fetch(select(tables.staged_files.c.id)).scalars()) - row[column] + 1
        )
    else:
        value = next(
            flipped(row[column]), "[]" if column in ("seal", "alarm") else FIRST_HOUR.start_s - 3600
        )
    put(world.database, table, row, column, value)
    for _ in range(6):
        world.closer.step()
        world.check()
        world.clock.advance(11)
    assert grade(world, "view") == "proved", "another type"
    if (
        table.name,
        column,
    ) in UNSEEN:  # no question finds it; its rows are listed, and count as unaudited rows
        assert manifest(world).events == 2
    else:
        assert not any(event_type == "click" for event_type, _ in world.judge.manifests)
    assert column == "listed_hour" or {d.table for d in find_damaged_rows(world.database)} == {
        table.name
    }


def test_a_damaged_group_says_so_to_operators(world: World) -> None:
    staged(world)
    row = first_row(world, tables.groups, tables.groups.c.type == "click")
    put(world.database, tables.groups, row, "low64_sum", row["low64_sum"] ^ 4)
    while not isinstance(world.closer.step(), Waiting):
        pass
    world.check()
    wait = wait_of(world)
    assert (
        wait.phase == "ledger"
        and "row of staged_groups" in wait.what[0]
        and "`hourmark ledger rebuild`" in wait.what[0]
    )
    put(
        world.database,
        tables.groups,
        row | {"low64_sum": row["low64_sum"] ^ 4},
        "low64_sum",
        row["low64_sum"],
    )
    world.clock.advance(60)
    poll(world)
    assert grade(world) == "proved"


def test_a_damaged_frontier_is_a_state_of_its_own(world: World) -> None:
    staged(world)
    row = {"type": "click", "settled_next": 0}
    put(world.database, tables.frontiers, row, "settled_next", 1 << 20)
    assert frontier(world).state is HourState.DAMAGED
    poll(world)
    assert wait_of(world).phase == "ledger"
    assert [
        f.event_type for f in frontiers(world.database, 3600) if f.state is HourState.DAMAGED
    ] == ["click"]


@pytest.mark.parametrize("listed", [None, FIRST_HOUR.start_s - 7200, FIRST_HOUR.start_s + 3600])
def test_a_sealed_hour_whose_listing_changed_is_not_written(
    world: World, monkeypatch: pytest.MonkeyPatch, listed: int | None
) -> None:
    staged(world)
    real = Publisher.publish

    def publish(self: Any, sealed: Any) -> Any:
        with world.database.transaction() as connection:
            one = (
                select(tables.groups.c.id)
                .where(tables.groups.c.type == "click")
                .limit(1)
                .scalar_subquery()
            )
            connection.execute(
                update(tables.groups).where(tables.groups.c.id == one).values(listed_hour=listed)
            )
        return real(self, sealed)

    monkeypatch.setattr(Publisher, "publish", publish)
    poll(world)
    world.check()
    assert (
        frontier(world).state is HourState.SEALED
        and ("click", FIRST_HOUR) not in world.judge.manifests
    )
    assert "but 2 or different rows were sealed" in wait_of(world).what[0]
    assert grade(world, "view") == "proved"


@pytest.mark.parametrize("name", [b"TABL\xc5 blockers", b"TABLE \xe2lockers"])
def test_a_schema_that_is_no_text_any_more_is_a_damaged_ledger(world: World, name: bytes) -> None:
    world.closer_database.close()
    world.database.close()
    whole = world.ledger.read_bytes()
    assert b"TABLE blockers" in whole
    world.ledger.write_bytes(whole.replace(b"TABLE blockers", name))
    with pytest.raises(EtlStop, match=r"cannot be read: .*`hourmark ledger rebuild`"):
        Database(world.config.etl.ledger)


@pytest.mark.slow
def test_single_bits_of_an_sqlite_ledger_never_lead_to_a_false_proof(world: World) -> None:
    seed = random.randrange(1 << 32)
    print(f"bits of seed {seed}")
    r = random.Random(seed)
    staged(world)
    world.closer_database.close()
    with world.database.transaction():
        pass
    world.database.close()
    whole, stored = world.ledger.read_bytes(), world.storage.snapshot()
    outcomes: dict[str, int] = {}
    for _ in range(int(os.environ.get("HOURMARK_LEDGER_BITS", "30"))):
        for other in world.ledger.parent.glob(f"{world.ledger.name}-*"):
            other.unlink()
        broken = bytearray(whole)
        broken[r.randrange(len(whole))] ^= 1 << r.randrange(8)
        world.ledger.write_bytes(broken)
        world.storage.restore(stored)
        for remembered in (world.judge.manifests, world.judge.closed, world.judge.where):
            remembered.clear()
        try:
            world.database = Database(world.config.etl.ledger)
            world.start_closer()
            for _ in range(3):
                world.closer.step()
            world.check()
            outcome = "closed" if len(world.judge.manifests) == len(TYPES) else "held"
        except HourmarkError as error:
            outcome = type(error).__name__
        world.check()
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        world.closer_database.close()
        world.database.close()
    print(outcomes)
    assert "closed" in outcomes, "most bits harm nothing"
