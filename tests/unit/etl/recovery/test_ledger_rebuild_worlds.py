"""A ledger is lost, and the world goes on with the rebuilt one: every acknowledged event is closed
once, and `proved` is true.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest
from tests.support.closing import (
    arrive,
    frontier,
    grade,
    grades,
    hour,
    manifests,
    override_all,
    report,
    send,
    until,
    wait_of,
)
from tests.support.forking import fork
from tests.support.rebuilding import begin, lose_ledger, next_offsets, staged_files
from tests.support.restaging import play_restager, retention_passes
from tests.support.simulator.sites import ALIAS
from tests.support.simulator.truth import EDGE_PARTITIONS, FIRST_HOUR, TYPES, config_of
from tests.support.simulator.world import World

from hourmark.errors import Finding
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, CONTROL, central_topic, events_topic
from hourmark.records.hours import Hour
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.partitions.offset_gaps import accepted_gaps, open_gaps
from hourmark_etl.recovery.rebuild_result import RebuildResult

TOPICS = (*CONTROL, *map(events_topic, TYPES))


@pytest.fixture
def world(world: World) -> World:
    begin(world)
    play_restager(world)
    return world


def now(world: World) -> Hour:
    return Hour.containing(world.clock.now_ms())


def live(world: World, count: int) -> None:
    """An hour after the other: events of it, some late, all staged in several batches, and
    closed.
    """
    for _ in range(count):
        start = now(world).start_s * 1000
        for n in range(3):
            send(world, ["click", "view"], start + 1000 * n + 1)
            send(world, ["click"], max(start - 3_600_000, FIRST_HOUR.start_s * 1000) + 10 + n)
            arrive(world)
        poll(world, Hour(start // 1000))


def poll(world: World, at: Hour | None = None) -> None:
    """Everything that can arrive does, and what can close closes; after the hour's end, where one
    is named.
    """
    if at is not None:
        until(world, at)
    for _ in range(3):
        report(world)
        for _ in range(6):
            world.closer.step()
        world.clock.advance(11)
    world.check()


def lose(world: World) -> RebuildResult:
    """The ledger; the restager reads with the rebuilt one."""
    done = lose_ledger(world)
    play_restager(world)
    return done


def copied_and_gone(world: World) -> None:
    """Retention of the edge deletes what the mirror has copied: all there is."""
    world.pipeline.mirror_all(0)
    for log in world.pipeline.edge.logs.values():
        log.start = len(log.records)


def finish(world: World) -> None:
    """All hours until now are closed, and everything acknowledged stands in one bucket."""
    poll(world, now(world))
    world.judge.check_end()


@pytest.mark.slow
def test_a_rebuilt_ledger_closes_everything_whole_and_stages_little_again(world: World) -> None:
    live(world, 6)
    send(world, ["click"])
    arrive(world)
    before = next_offsets(world)
    world.ledgers.keep_checks(0)
    done = lose(world)
    assert (done.lost, done.notes, done.staged_files) == ([], [], 0)
    after = next_offsets(world)
    events = [p for p in after if "events." in p.topic and before[p]]
    assert events and all(before[p] / 2 < after[p] < before[p] for p in events), (
        "two of six hours, and what is open"
    )
    live(world, 2)
    finish(world)
    assert {*grades(world), *grades(world, "view")} == {"proved"}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_no_staged_file_need_stand_where_kafka_has_its_records(world: World, how: str) -> None:
    live(world, 2)
    send(world, ["click", "view"])
    arrive(world)
    for path in [*staged_files(world, "events"), *staged_files(world, "audit")]:
        if how == "gone":
            world.storage.delete(path)
        else:
            world.storage.damage(path)
    assert lose(world).lost == []
    finish(world)
    assert set(grades(world)) == {"proved"}


def held_open(world: World) -> None:
    """Hours are closed; the next ones stay open until Kafka has let go of all their records, which
    are staged.
    """
    live(world, 4)
    for n in range(4):
        start = now(world).start_s * 1000
        send(world, ["click", "view"], start + n)
        send(world, ["click"], start - 3_600_000 + n)  # late
        arrive(world)
        world.clock.advance(3600)
    retention_passes(world, *TOPICS)


@pytest.mark.slow
def test_an_hour_that_was_held_open_for_longer_than_retention_closes_whole(world: World) -> None:
    held_open(world)
    world.ledgers.keep_checks(0)
    done = lose(world)
    assert (done.lost, done.notes) == ([], []) and done.staged_files > 0
    finish(world)
    assert {*grades(world), *grades(world, "view")} == {"proved"}


@pytest.mark.slow
def test_unaudited_and_the_promises_it_waits_for_are_found_again(world: World) -> None:
    live(world, 3)
    producers = world.producers
    send(world, ["click"])
    late = producers.edge.logs[Partition(AUDIT, 0)].records.pop()  # its service died first
    poll(world, now(world))
    assert [m.unaudited for m in manifests(world)][-1] == 1
    held_open(world)
    lose(world)
    world.producers.edge.append(Partition(AUDIT, 0), late)
    finish(world)
    assert set(grades(world)) == {"proved"}


@pytest.mark.slow
def test_a_lost_file_of_events_can_only_be_forced_and_names_its_offsets(world: World) -> None:
    held_open(world)
    open_from = frontier(world).hour
    path = staged_files(world, "events")[-1]
    world.storage.delete(path)
    done = lose(world)
    assert done.lost == [] and len(accepted_gaps(world.database)) > 0
    world.judge.given_up |= world.producers.events.keys()
    poll(world, hour(30))
    poll(world)
    said = {
        at: m for (t, at), m in world.judge.manifests.items() if t == "click" and at >= open_from
    }
    wrong = {at: m for at, m in said.items() if m.grade.value != "proved"}
    assert wrong and {m.grade.value for m in wrong.values()} == {"forced"}
    for m in wrong.values():
        assert any(
            "events.click partition" in text and "offsets [" in text for text in m.evidence.waived
        )


@pytest.mark.slow
def test_a_lost_file_of_promises_holds_every_type_until_an_override_for_all(world: World) -> None:
    held_open(world)
    world.storage.delete(staged_files(world, "audit")[-1])
    closed_before = len(world.judge.manifests)
    (lost,) = (done := lose(world)).lost
    assert "hourmark.audit partition 0: offsets [" in lost and done.staged_files > 0
    poll(world, now(world))
    assert len(world.judge.manifests) == closed_before and [
        h.what for h in open_gaps(world.database)
    ] == [lost]
    override_all(world)
    begun_by = now(world)
    poll(world)
    poll(world, hour(14))
    new = list(world.judge.manifests.values())[closed_before:]
    assert any(m.hour > str(begun_by.next()) for m in new)
    for m in new:
        assert m.grade.value == (
            "forced" if m.hour <= str(begun_by) else "proved"
        ) or m.hour == str(begun_by.next())
        assert m.grade.value == "proved" or any(lost in text for text in m.evidence.waived)


@pytest.mark.parametrize(
    "every", [pytest.param(5, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)]
)
def test_whichever_file_is_lost_nothing_is_proved_that_is_not_whole(
    world: World, every: int
) -> None:
    held_open(world)
    count = len(staged_files(world, "events")) + len(staged_files(world, "audit"))
    for at in range(0, count, every):  # an odd number, so that both kinds of damage occur
        other = fork(world)
        path = [*staged_files(other, "events"), *staged_files(other, "audit")][at]
        other.damages.lose(path)
        if at % 2:
            other.storage.write_new(path, b"PAR1 and no more")
        lose(other)
        for n in range(3):
            poll(other, hour(12 + 3 * n))
            if open_gaps(other.database):
                override_all(other)
        other.judge.check()  # every event that a proved bucket should hold, it holds
        assert frontier(other, "click").hour > hour(12)
        other.end()


def test_a_restored_copy_that_is_lost_later_knows_no_less(world: World, tmp_path: Path) -> None:
    live(world, 2)
    copy = tmp_path / "copy.sqlite"
    with (
        contextlib.closing(sqlite3.connect(world.ledger)) as now,
        contextlib.closing(sqlite3.connect(copy)) as made,
    ):
        now.backup(made)
    for _ in range(2):  # the time that is forgotten: restarts and batches
        send(world, ["click"])
        world.pipeline.consumer = world.database.acquire("consumer:default")
        arrive(world)
    world.database.close()
    world.closer_database.close()
    world.ledger, world.config = copy, config_of(copy)
    world.database = world.pipeline.database = Database(world.config.etl.ledger)
    world.pipeline.consumer = world.database.acquire("consumer:default")
    play_restager(world)
    r = random.Random(1)
    for _ in range(4):
        send(world, ["click"])
        world.pipeline.mirror_all(0)
        world.pipeline.stage(r.getrandbits(30))
    world.pipeline.stage_all(0)
    lose(world)
    finish(world)
    assert set(grades(world)) == {"proved"}


@pytest.mark.slow
def test_storage_away_for_longer_than_retention_is_forced_by_overrides_that_name_the_offsets(
    world: World,
) -> None:
    live(world, 3)
    send(world, ["click"])
    world.pipeline.mirror_all(0)  # and nothing is staged
    retention_passes(world, *TOPICS)
    closed_before = len(world.judge.manifests)
    poll(world, now(world))
    assert len(world.judge.manifests) == closed_before
    assert {h.topic for h in open_gaps(world.database)} == {AUDIT, events_topic("click")}
    world.judge.given_up |= world.producers.events.keys()
    override_all(world)
    poll(world)
    new = list(world.judge.manifests.values())[closed_before:]
    assert new and {m.grade.value for m in new} == {"forced"}
    assert all(
        any(f"{AUDIT} partition 0: offsets [" in text for text in m.evidence.waived) for m in new
    )
    assert open_gaps(world.database) == [] and len(accepted_gaps(world.database)) == 2
    poll(world, hour(12))
    assert grade(world, "click", hour(12)) == "proved"


@pytest.mark.slow
def test_what_the_edge_deleted_after_it_was_copied_holds_nothing(world: World) -> None:
    live(world, 3)
    send(world, ["click", "view"])
    arrive(world)
    poll(world)  # its checks see where the mirror stands
    world.ledgers.keep_checks(0)
    for n in range(len(EDGE_PARTITIONS)):
        world.pipeline.retention(n)
    assert all(
        world.pipeline.edge.logs[Partition(t, 0)].start > 0
        for t in (*CONTROL, events_topic("click"))
    )
    done = lose(world)
    assert (done.lost, done.notes) == ([], [])
    live(world, 1)
    finish(world)
    assert {*grades(world), *grades(world, "view")} == {"proved"}


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["before", "never", "damaged"])
def test_what_may_never_have_been_copied_holds_its_types_until_an_override(
    world: World, kept: str
) -> None:
    live(world, 2)
    if kept != "never":
        world.ledgers.keep_checks(0)
    send(world, ["click"])
    arrive(world)
    if kept == "damaged":
        poll(world)
        world.ledgers.keep_checks(0)
        (path,) = (p for p in world.storage.content("_ledger") if "/offsets-" in p)
        world.storage.damage(path)
    copied_and_gone(world)
    done = lose(world)
    assert len(done.notes) == {"before": 0, "never": 1, "damaged": 2}[kept]
    assert kept != "damaged" or path in done.notes[0]
    closed_before = len(world.judge.manifests)
    poll(world, now(world))
    assert len(world.judge.manifests) == closed_before
    assert "offsets" in wait_of(world).what[0]
    override_all(world)
    poll(world)
    poll(world, hour(12))
    assert {m.grade.value for m in list(world.judge.manifests.values())[closed_before:]} == {
        "forced",
        "proved",
    }


@pytest.mark.slow
def test_accepted_gaps_are_known_and_their_hours_are_not_proved(world: World) -> None:
    live(world, 2)
    send(world, ["click"])
    world.pipeline.mirror.overtake(Partition(AUDIT, 0))
    arrive(world)
    poll(world, now(world))
    override_all(world)
    poll(world)
    begun_by = now(world)
    world.ledgers.keep_checks(0)
    send(world, ["click", "view"])
    arrive(world)
    lose(world)
    assert [gap.topic for gap in accepted_gaps(world.database)] == [AUDIT]
    live(world, 3)
    assert [grade(world, "view", at) for at in (begun_by, begun_by.next().next())] == [
        "forced",
        "proved",
    ]


@pytest.mark.slow
def test_an_accepted_gap_of_the_central_cluster_is_not_found_again(world: World) -> None:
    live(world, 3)
    send(world, ["click"])
    world.pipeline.mirror_all(0)  # and nothing is staged
    retention_passes(world, *TOPICS)
    world.judge.given_up |= world.producers.events.keys()
    poll(world, now(world))
    override_all(world)
    poll(world)
    world.ledgers.keep_checks(0)
    before = accepted_gaps(world.database)
    assert before
    for _ in range(2):
        done = lose(world)
        assert done.lost == []
        assert [g.what for g in accepted_gaps(world.database)] == [g.what for g in before]
        world.ledgers.keep_checks(0)


def test_promises_that_the_central_cluster_has_lost_hold_every_type_after_a_rebuild(
    world: World,
) -> None:
    live(world, 2)
    send(world, ["click"])
    arrive(world)
    poll(world)
    world.ledgers.keep_checks(0)
    for n in range(len(EDGE_PARTITIONS)):
        world.pipeline.retention(n)
    world.pipeline.shorten((AUDIT, events_topic("click")), 2)
    closed_before = len(world.judge.manifests)
    (lost,) = lose(world).lost
    assert "its log lost records" in lost and AUDIT in lost
    poll(world, now(world))
    assert len(world.judge.manifests) == closed_before and lost in wait_of(world).what[0]


def test_promises_of_another_topic_are_refused(world: World) -> None:
    live(world, 2)
    world.ledgers.keep_checks(0)
    world.pipeline.central.logs[Partition(central_topic(AUDIT, ALIAS), 0)].topic_id = "another"
    with pytest.raises(Finding, match="is not the topic whose promises were staged"):
        lose(world)


@pytest.mark.slow
def test_a_central_log_that_lost_records_holds_every_type_and_no_event_that_comes_into_their_place_is_left_out(
    world: World,
) -> None:
    live(world, 2)
    for _ in range(3):
        send(world, ["click"])
        arrive(world)
    world.pipeline.shorten((AUDIT, events_topic("click")), 6)
    closed_before = len(world.judge.manifests)
    send(world, ["click"])
    poll(world, now(world))
    (gap,) = open_gaps(world.database)
    assert gap.topic == AUDIT and "its log lost records" in gap.what
    assert len(world.judge.manifests) == closed_before
    override_all(world)
    poll(world)
    assert open_gaps(world.database) == [gap], (
        "while it is shorter, promises come that nobody reads"
    )
    for _ in range(4):
        send(world, ["click"])
        arrive(world)
    poll(world, now(world))
    override_all(world)
    begun_by = now(world)
    for at in (begun_by, begun_by.next(), begun_by.next().next()):
        poll(world, at)
    assert open_gaps(world.database) == []
    assert [grade(world, "click", h) for h in (begun_by, begun_by.next().next())] == [
        "forced",
        "proved",
    ]
    world.judge.check_end()
