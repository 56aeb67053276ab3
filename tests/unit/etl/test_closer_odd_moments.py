"""What happens between two steps of a cut, or again and again: nothing is proved falsely, and nobody waits unnamed."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from sqlalchemy import delete, select, update
from tests.support.closing import arrive, frontier, hour, manifest, poll, send, settle, until, wait_of
from tests.support.simulator.sites import Log
from tests.support.simulator.truth import EDGE_PARTITIONS, FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.errors import UsageError
from hourmark.kafka import Partition
from hourmark.topics import AUDIT, HOSTS, events_topic
from hourmark_etl.closing.cut.cut import Waiting
from hourmark_etl.closing.proof.proof import Proof
from hourmark_etl.errors import DataLoss
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Lease, put
from hourmark_etl.ledger.digests import damaged_rows, with_digest
from hourmark_etl.ledger.offset_gaps import accepted_gaps
from hourmark_etl.ledger.overrides import overrides, put_override, put_overrides
from hourmark_etl.model import Frontier, State


def grades(world: World, event_type: str) -> list[str]:
    return [m.grade.value for (t, _), m in sorted(world.judge.manifests.items()) if t == event_type]


def test_an_order_in_the_middle_of_a_cut_does_not_bring_settled_promises_back(world: World) -> None:
    send(world, ["click", "view"], FIRST_HOUR.start_s * 1000 + 1000)
    until(world, hour(1))
    world.producers.report(0)
    send(world, ["view"], hour(1).start_s * 1000 + 5)  # the mirror lags behind with it, and the cut waits
    arrive(world, HOSTS, AUDIT, events_topic("click"))
    assert isinstance(world.closer.step(), Waiting)
    send(world, ["click"], FIRST_HOUR.start_s * 1000 + 9000)  # past the audit end of the cut
    arrive(world, AUDIT, events_topic("click"))
    put_override(world.database, "click", FIRST_HOUR, "wanted now", "ada", world.clock.now_ms())
    assert world.closer.step() == 1
    settled_next = frontier(world, "click").settled_next
    for later in (hour(1), hour(2), hour(3)):
        until(world, later, seconds=30)
        settle(world)
        assert frontier(world, "click").settled_next >= settled_next
    assert grades(world, "click") == ["forced", "proved", "proved", "proved"]


def test_the_mirrors_position_in_an_older_topic_hides_no_gap_in_the_new_one(world: World) -> None:
    for n in range(50):
        send(world, ["click"], FIRST_HOUR.start_s * 1000 + n)
        world.producers.report(0)
    until(world, FIRST_HOUR)
    settle(world)
    for p in EDGE_PARTITIONS:
        world.producers.edge.logs[p] = Log(f"anew-{p.topic}")
    until(world, hour(1))
    put_overrides(world.database, 3600, "the edge was recreated", "ada", world.clock.now_ms())
    for _ in range(3):
        world.closer.step()
    for p in EDGE_PARTITIONS:
        world.pipeline.mirror.positions[p] = 0  # the mirror finds its position out of range, and begins at the earliest
    for n in range(5):
        send(world, ["click"], hour(3).start_s * 1000 + n)
    until(world, hour(3))
    settle(world)
    put_overrides(world.database, 3600, "the edge was recreated", "ada", world.clock.now_ms())
    for _ in range(4):
        world.clock.advance(31)
        settle(world)
    for n in range(9):
        send(world, ["click"], hour(4).start_s * 1000 + n)
    for p in EDGE_PARTITIONS:
        world.pipeline.mirror.overtake(p)
    until(world, hour(4))
    settle(world)
    assert frontier(world, "click").hour <= hour(4), "an hour was closed whose promises were lost"
    assert any("may be missing" in what for what in wait_of(world, "click").what)
    world.judge.check()


def test_types_that_are_refused_in_turn_do_not_keep_the_closer_in_one_look(world: World) -> None:
    engine, asked = world.closer._sealer.engine, []

    class Slow:
        def prove(self, frozen: Collection[Frontier], audit_next: int) -> dict[str, Proof]:
            asked.append(len(frozen))
            assert len(asked) < 12, "the closer does not come back"
            world.clock.advance(12)  # longer than a refused type is set back
            return engine.prove(frozen, audit_next)

        compare, write = staticmethod(engine.compare), staticmethod(engine.write)

    object.__setattr__(world.closer._sealer, "engine", Slow())
    for event_type, at in (("click", 0), ("view", 1)):
        send(world, [event_type], hour(at).start_s * 1000 + 7)
        lost = Partition(events_topic(event_type), 0)
        world.pipeline.mirror.positions[lost] = len(world.producers.edge.logs[lost].records)  # jumped over
    until(world, hour(1))
    world.producers.report(0)
    world.pipeline.mirror_all(0)
    world.pipeline.stage_all(0)
    for _ in range(3):
        world.closer.step()
    assert frontier(world, "click").hour == FIRST_HOUR and frontier(world, "view").hour == hour(1)


def test_hosts_that_appear_in_every_cut_are_named_and_after_the_deadline_waived(world: World) -> None:
    until(world, FIRST_HOUR)
    number = iter(range(100, 200))

    def another_cut() -> None:
        settle_reports(world)
        world.producers.say("tailer", f"{next(number):032x}", 1, "app", world.clock.now_ms())  # not mirrored yet
        world.closer.step()
        settle_reports(world)
        world.closer.step()
        world.clock.advance(2)

    for _ in range(3):
        another_cut()
    assert frontier(world, "click").hour == FIRST_HOUR
    assert any("has just appeared" in what for what in wait_of(world, "click").what)
    world.clock.advance(world.config.etl.deadline_seconds)
    for _ in range(3):
        another_cut()
    world.check()
    assert manifest(world, "click").grade.value == "timed_out"
    assert any("appeared while the hour was being cut" in e for e in manifest(world, "click").evidence.waived)


def settle_reports(world: World) -> None:
    world.producers.report(0)
    world.pipeline.mirror_all(0)
    world.pipeline.stage_all(0)


@pytest.mark.parametrize("in_a_cut", [False, True])
def test_a_topic_that_is_gone_from_the_edge_holds_up_its_own_type_alone(world: World, in_a_cut: bool) -> None:
    until(world, FIRST_HOUR)
    world.producers.report(0)
    if in_a_cut:
        assert isinstance(world.closer.step(), Waiting)
    for p in [p for p in EDGE_PARTITIONS if p.topic == events_topic("click")]:
        del world.producers.edge.logs[p]
    world.clock.advance(31)
    for p in world.producers.edge.logs:
        world.pipeline.mirror.copy(p, world.pipeline.mirror.lag(p))
    world.pipeline.stage_all(0)
    for _ in range(5):
        world.closer.step()
    world.judge.check()
    assert grades(world, "view") == ["proved"]
    assert "does not exist at the edge" in wait_of(world, "click").what[0]


def forget_schema(world: World, schema_id: int, **others: str) -> Callable[[], None]:
    """Take the id's row away, or change it; gives back what undoes that."""
    table = tables.schemas
    own = table.c.schema_id == schema_id
    row = dict(world.database.ask(select(table).where(own)).mappings().one())
    changed = with_digest(table, {**row, **others}) if "type" in others else others
    with world.database.transaction() as connection:
        connection.execute(update(table).where(own).values(**changed) if others else delete(table).where(own))

    def undo() -> None:
        with world.database.transaction() as connection:
            put(connection, table, ["schema_id"], [row])

    return undo


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({}, "the ledger knows no schema with the id 1"),
        ({"type": "view"}, "schema id 1, under which events of click were written, stands for view"),
    ],
)
def test_an_id_that_does_not_stand_for_its_type_holds_up_that_type_alone(world: World, others: dict[str, str], said: str) -> None:
    send(world, ["click", "view"], FIRST_HOUR.start_s * 1000 + 1000)
    undo = forget_schema(world, schema_of(world, "click"), **others)
    until(world, FIRST_HOUR)
    settle(world)
    assert grades(world, "view") == ["proved"] and grades(world, "click") == []
    assert said in wait_of(world, "click").what[0]
    undo()
    world.clock.advance(11)
    settle(world)
    assert grades(world, "click") == ["proved"]


def test_a_schema_that_was_changed_in_the_ledger_is_written_into_no_bucket(world: World) -> None:
    send(world, ["click"], FIRST_HOUR.start_s * 1000 + 1000)
    undo = forget_schema(world, schema_of(world, "click"), schema='{"type":"string"}')
    until(world, FIRST_HOUR)
    settle(world)
    assert (grades(world, "click"), grades(world, "view")) == ([], ["proved"])
    assert "the ledger's row of schemas (schema_id 1) is not as it was written" in wait_of(world, "click").what[0]
    assert [str(d) for d in damaged_rows(world.database)] == [wait_of(world, "click").what[0]]
    undo()
    for _ in range(2):  # what is damaged is looked at again after a pause
        world.clock.advance(11)
        settle(world)
    assert grades(world, "click") == ["proved"]


def schema_of(world: World, event_type: str) -> int:
    value = next(e.value for e in world.producers.events.values() if e.event_type == event_type)
    return int.from_bytes(value[1:5], "big")


def test_a_damaged_file_that_kafka_no_longer_holds_sets_back_the_types_in_it_alone(world: World) -> None:
    def lost(lease: Lease, path: str) -> str:
        raise DataLoss(f"{path} cannot be staged again")

    object.__setattr__(world.closer._ports, "restage", lost)
    send(world, ["click"], FIRST_HOUR.start_s * 1000 + 1000)
    settle(world)
    damaged = {p: world.storage.read(p) for p in staged_files(world)}
    for path in damaged:
        world.storage.damage(path)
    send(world, ["view"], FIRST_HOUR.start_s * 1000 + 1000)
    until(world, FIRST_HOUR)
    world.producers.report(0)
    poll(world)
    assert grades(world, "view") == ["proved"] and grades(world, "click") == []
    assert wait_of(world, "click").phase == "staged" and "cannot be staged again" in wait_of(world, "click").what[0]
    for path, content in damaged.items():
        world.storage.delete(path)
        world.storage.write_new(path, content)
    world.clock.advance(21)
    settle(world)
    assert grades(world, "click") == ["proved"]


def staged_files(world: World) -> list[str]:
    folders = [e.name for e in world.storage.list("_staging")]
    return [
        f"_staging/{folder}/{entry.name}"
        for folder in folders
        for entry in world.storage.list(f"_staging/{folder}")
        if entry.name.startswith("events-")
    ]


def test_an_order_for_all_types_waits_for_a_sealed_hour_because_its_close_would_take_it_from_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only orders of all types at once accept a gap in promises."""

    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    for n in range(50):
        send(world, ["click", "view"], FIRST_HOUR.start_s * 1000 + n)
        world.producers.report(0)
    until(world, FIRST_HOUR)
    monkeypatch.setattr("hourmark_etl.closing.publishing.publish", killed)
    with pytest.raises(Killed):
        settle(world)
    monkeypatch.undo()
    assert frontier(world, "click").state is State.SEALED
    for p in EDGE_PARTITIONS:
        world.producers.edge.logs[p] = Log(f"anew-{p.topic}")
        world.pipeline.mirror.positions[p] = 0
    until(world, hour(1))
    with pytest.raises(UsageError, match=rf"about to be published .* click {FIRST_HOUR}, view .*; order again"):
        put_overrides(world.database, 3600, "the edge was recreated", "ada", world.clock.now_ms())
    assert overrides(world.database) == {}
    world.start_closer()
    settle(world)
    put_overrides(world.database, 3600, "the edge was recreated", "ada", world.clock.now_ms())
    settle(world)
    assert any(h.topic == AUDIT for h in accepted_gaps(world.database))
