"""What happens between two steps of a cut, or again and again: nothing is proved falsely, and
nobody waits unnamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import pyarrow as pa
import pytest
from sqlalchemy import delete, select, update
from tests.support.closing import (
    arrive,
    frontier,
    grade,
    grades,
    hour,
    manifest,
    open_hours,
    override,
    override_all,
    poll,
    report,
    send,
    send_again,
    settle,
    until,
    wait_of,
    with_engine_alone,
)
from tests.support.rebuilding import staged_files
from tests.support.simulator.hooks import Killed
from tests.support.simulator.sites import Log
from tests.support.simulator.truth import EDGE_PARTITIONS, FIRST_HOUR, TYPES
from tests.support.simulator.world import World

from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, HOSTS, events_topic
from hourmark.records.manifest import MARKER
from hourmark_etl.closing.cut.cut import Waiting
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.proof import evidence
from hourmark_etl.closing.proof.proof import Proof
from hourmark_etl.errors import DataLoss
from hourmark_etl.ledger import frontiers, tables
from hourmark_etl.ledger.database import Lease, replace_rows
from hourmark_etl.ledger.digests import find_damaged_rows, with_digest
from hourmark_etl.ledger.overrides import overrides
from hourmark_etl.ledger.partitions.offset_gaps import accepted_gaps
from hourmark_etl.model import AuditOffsets, Frontier, HourState
from hourmark_etl.storage import BadBlocks, Storage

pytestmark = pytest.mark.slow


def test_an_override_in_the_middle_of_a_cut_does_not_bring_settled_promises_back(
    world: World,
) -> None:
    send(world, ["click", "view"])
    until(world, hour(1))
    world.producers.report(0)
    send(
        world, ["view"], hour(1).start_s * 1000 + 5
    )  # the mirror lags behind with it, and the cut waits
    arrive(world, HOSTS, AUDIT, events_topic("click"))
    assert isinstance(world.closer.step(), Waiting)
    send(world, ["click"], FIRST_HOUR.start_s * 1000 + 9000)  # past the audit end of the cut
    arrive(world, AUDIT, events_topic("click"))
    override(world)
    assert world.closer.step() == 1
    settled_next = frontier(world).settled_next
    for later in (hour(1), hour(2), hour(3)):
        settle(world, later, 30)
        assert frontier(world).settled_next.reaches(settled_next)
    assert grades(world) == ["forced", "proved", "proved", "proved"]


def test_the_mirrors_position_in_an_older_topic_hides_no_gap_in_the_new_one(world: World) -> None:
    for n in range(50):
        send(world, ["click"], FIRST_HOUR.start_s * 1000 + n)
        world.producers.report(0)
    settle(world, FIRST_HOUR)
    for p in EDGE_PARTITIONS:
        world.producers.edge.logs[p] = Log(f"anew-{p.topic}")
    until(world, hour(1))
    override_all(world)
    for _ in range(3):
        world.closer.step()
    for p in EDGE_PARTITIONS:
        world.pipeline.mirror.positions[p] = (
            0  # the mirror finds its position out of range, and begins at the earliest
        )
    for n in range(5):
        send(world, ["click"], hour(3).start_s * 1000 + n)
    settle(world, hour(3))
    override_all(world)
    for _ in range(4):
        world.clock.advance(31)
        settle(world)
    for n in range(9):
        send(world, ["click"], hour(4).start_s * 1000 + n)
    for p in EDGE_PARTITIONS:
        world.pipeline.mirror.overtake(p)
    settle(world, hour(4))
    assert frontier(world).hour <= hour(4), "an hour was closed whose promises were lost"
    assert any("may be missing" in what for what in wait_of(world).what)
    world.judge.check()


def test_types_that_are_refused_in_turn_do_not_keep_the_closer_in_one_poll(world: World) -> None:
    make_engine, asked = world.engine, []

    class Slow:
        def __init__(self, engine: Engine) -> None:
            self.compare, self.write, self._prove = engine.compare, engine.write, engine.prove
            self.prove_by_sums = engine.prove_by_sums

        def prove(self, frozen: Collection[Frontier], audit_next: AuditOffsets) -> dict[str, Proof]:
            asked.append(len(frozen))
            assert len(asked) < 12, "the closer does not come back"
            world.clock.advance(12)  # longer than a refused type is set back
            return self._prove(frozen, audit_next)

    world.closer_database.close()
    world.engine = lambda database: Slow(make_engine(database))  # type: ignore
    world.start_closer()
    for event_type, at in (("click", 0), ("view", 1)):
        send(world, [event_type], hour(at).start_s * 1000 + 7)
        lost = Partition(events_topic(event_type), 0)
        world.pipeline.mirror.positions[lost] = len(
            world.producers.edge.logs[lost].records
        )  # jumped over
    until(world, hour(1))
    report(world)
    for _ in range(3):
        world.closer.step()
    assert frontier(world).hour == FIRST_HOUR and frontier(world, "view").hour == hour(1)


def test_hosts_that_appear_in_every_cut_are_named_and_after_the_deadline_waived(
    world: World,
) -> None:
    until(world, FIRST_HOUR)
    number = iter(range(100, 200))

    def another_cut() -> None:
        report(world)
        world.producers.say(
            "tailer", f"{next(number):032x}", 1, "app", world.clock.now_ms()
        )  # not mirrored yet
        world.closer.step()
        report(world)
        world.closer.step()
        world.clock.advance(2)

    for _ in range(3):
        another_cut()
    assert frontier(world).hour == FIRST_HOUR
    assert any("has just appeared" in what for what in wait_of(world).what)
    world.clock.advance(world.config.etl.deadline_seconds)
    for _ in range(3):
        another_cut()
    world.check()
    assert grade(world) == "timed_out"
    assert any(
        "appeared while the hour was being cut" in e for e in manifest(world).evidence.waived
    )


@pytest.mark.parametrize("in_a_cut", [False, True])
def test_a_topic_that_is_gone_from_the_edge_holds_up_its_own_type_alone(
    world: World, in_a_cut: bool
) -> None:
    until(world, FIRST_HOUR)
    world.producers.report(0)
    if in_a_cut:
        assert isinstance(world.closer.step(), Waiting)
    for p in [p for p in EDGE_PARTITIONS if p.topic == events_topic("click")]:
        del world.producers.edge.logs[p]
    world.clock.advance(31)
    arrive(world, AUDIT, HOSTS, events_topic("view"))
    for _ in range(5):
        world.closer.step()
    world.judge.check()
    assert grades(world, "view") == ["proved"]
    assert "does not exist at the edge" in wait_of(world).what[0]
    assert "`hourmark types apply` creates it" in wait_of(world).what[0]


def forget_schema(world: World, schema_id: int, **others: str) -> Callable[[], None]:
    """Take the id's row away, or change it; gives back what undoes that."""
    table = tables.schemas
    own = table.c.schema_id == schema_id
    row = dict(world.database.fetch(select(table).where(own)).mappings().one())
    changed = with_digest(table, {**row, **others}) if "type" in others else others
    with world.database.transaction() as connection:
        connection.execute(
            update(table).where(own).values(**changed) if others else delete(table).where(own)
        )

    def undo() -> None:
        with world.database.transaction() as connection:
            replace_rows(connection, table, ["schema_id"], [row])

    return undo


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({}, "the ledger has no schema with id 1"),
        (
            {"type": "view"},
            "schema id 1, with which events of click were written, belongs to view",
        ),
    ],
)
def test_an_id_that_does_not_stand_for_its_type_holds_up_that_type_alone(
    world: World, others: dict[str, str], said: str
) -> None:
    send(world, ["click", "view"])
    arrive(world)
    undo = forget_schema(world, schema_of(world, "click"), **others)
    settle(world, FIRST_HOUR)
    assert grades(world, "view") == ["proved"] and grades(world) == []
    assert said in wait_of(world).what[0]
    assert (wait_of(world).phase, frontier(world).state) == ("unwritable", HourState.OPEN), (
        "it is not sealed"
    )
    undo()
    world.clock.advance(11)
    settle(world)
    assert grades(world) == ["proved"]


def test_a_schema_that_was_changed_in_the_ledger_is_written_into_no_bucket(world: World) -> None:
    send(world, ["click"])
    undo = forget_schema(world, schema_of(world, "click"), schema='{"type":"string"}')
    settle(world, FIRST_HOUR)
    assert (grades(world), grades(world, "view")) == ([], ["proved"])
    assert (
        "the ledger's row of schemas (schema_id 1) does not match its digest"
        in wait_of(world).what[0]
    )
    assert [str(d) for d in find_damaged_rows(world.database)] == [wait_of(world).what[0]]
    undo()
    for _ in range(2):  # what is damaged is looked at again after a pause
        world.clock.advance(11)
        settle(world)
    assert grades(world) == ["proved"]


def schema_of(world: World, event_type: str) -> int:
    value = next(e.value for e in world.producers.events.values() if e.event_type == event_type)
    return int.from_bytes(value[1:5], "big")


def test_a_damaged_file_that_kafka_no_longer_holds_sets_back_the_types_in_it_alone(
    world: World,
) -> None:
    def lost(lease: Lease, path: str) -> str:
        raise DataLoss(f"{path} cannot be staged again")

    world.pipeline.restage = lost  # type: ignore[method-assign]
    world.start_closer()
    send(world, ["click"])
    settle(world)
    damaged = {p: world.storage.read(p) for p in staged_files(world, "events")}
    for path in damaged:
        world.storage.damage(path)
    send(world, ["view"])
    until(world, FIRST_HOUR)
    world.producers.report(0)
    poll(world)
    assert grades(world, "view") == ["proved"] and grades(world) == []
    assert wait_of(world).phase == "staged" and "cannot be staged again" in wait_of(world).what[0]
    for path, content in damaged.items():
        world.storage.delete(path)
        world.storage.write_new(path, content)
    world.clock.advance(21)
    settle(world)
    assert grades(world) == ["proved"]


def test_an_override_for_all_types_waits_for_a_sealed_hour_because_its_close_would_take_it_from_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only overrides of all types at once accept a gap in promises."""

    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    for n in range(50):
        send(world, ["click", "view"], FIRST_HOUR.start_s * 1000 + n)
        world.producers.report(0)
    until(world, FIRST_HOUR)
    monkeypatch.setattr("hourmark_etl.closing.publishing.publish_prepared", killed)
    with pytest.raises(Killed):
        settle(world)
    monkeypatch.undo()
    assert frontier(world).state is HourState.SEALED
    for p in EDGE_PARTITIONS:
        world.producers.edge.logs[p] = Log(f"anew-{p.topic}")
        world.pipeline.mirror.positions[p] = 0
    until(world, hour(1))
    with pytest.raises(
        UsageError,
        match=rf"about to be published .* click {FIRST_HOUR}, view .*; repeat the command",
    ):
        override_all(world)
    assert overrides(world.database) == {}
    world.start_closer()
    settle(world)
    override_all(world)
    settle(world)
    assert any(h.topic == AUDIT for h in accepted_gaps(world.database))


def test_promises_that_several_types_have_settled_are_read_once_for_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(world, ["click", "view"])
    sent = world.producers.ranges[-1]
    settle(world, FIRST_HOUR)
    (settled,) = staged_files(world, "audit")
    send_again(world, sent)  # its service dies before the record
    read: Counter[str] = Counter()
    real = evidence.read_promises

    def counted(storage: Storage, path: str) -> pa.Table:
        read[path] += 1
        return real(storage, path)

    monkeypatch.setattr(evidence, "read_promises", counted)
    with_engine_alone(world)
    settle(world, hour(1))
    assert [manifest(world, t, hour(1)).evidence.method for t in TYPES] == ["join", "join"]
    assert [manifest(world, t, hour(1)).duplicates_removed for t in TYPES] == [1, 1]
    assert read[settled] == 1


def test_one_of_them_that_is_gone_holds_the_types_that_ask_for_it(world: World) -> None:
    send(world, ["click", "view"])
    sent = world.producers.ranges[-1]
    settle(world, FIRST_HOUR)
    (settled,) = staged_files(world, "audit")
    send_again(world, sent)
    world.damages.lose(settled)
    for log in world.pipeline.central.logs.values():
        log.start = len(log.records)  # nor can it be staged again
    with_engine_alone(world)
    settle(world, hour(1))
    assert open_hours(world) == {hour(1)}
    assert all(settled in " ".join(wait_of(world, t).what) for t in TYPES)


def test_a_marker_that_storage_lost_before_the_ledger_knew_of_it_holds_its_own_type_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = f"{FIRST_HOUR.bucket_path('click')}/{MARKER}"
    real = world.storage.read

    def lost(path: str, *, size: int | None = None) -> bytes:
        if path == marker:
            raise BadBlocks(path, world.storage.url(path), "no live replica has it")
        return real(path, size=size)

    def killed(*_: object) -> None:
        monkeypatch.setattr(world.storage, "read", lost)
        monkeypatch.setattr(frontiers, "record_closed_hours", record_closed_hours)
        raise Killed

    record_closed_hours = frontiers.record_closed_hours
    monkeypatch.setattr(frontiers, "record_closed_hours", killed)
    send(world, ["click", "view"])
    with pytest.raises(Killed):
        settle(world, FIRST_HOUR)
    assert world.storage.exists(marker)
    world.start_closer()
    settle(world)
    assert (frontier(world).hour, frontier(world, "view").hour) == (FIRST_HOUR, hour(1))
    assert wait_of(world).phase == "storage" and "no live replica has it" in wait_of(world).what[0]
    monkeypatch.setattr(world.storage, "read", real)
    world.clock.advance(60)
    settle(world)
    assert (grades(world), grades(world, "view")) == (["proved"], ["proved"])
