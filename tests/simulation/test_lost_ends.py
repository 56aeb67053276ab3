"""Central logs lose their end (an unclean election, a broker's disk), and others take the lost
records' places: what is met then.

Nothing is proved that is not whole, no cut waits for what cannot come, and what staged files hold
of it is not lost with the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from tests.support.closing import (
    arrive,
    frontier,
    grade,
    hour,
    override,
    override_all,
    report,
    until,
)
from tests.support.rebuilding import begin, lose_ledger, staged_files
from tests.support.simulator.truth import FIRST_HOUR, TYPES
from tests.support.simulator.world import World

from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, CONTROL, HOSTS, central_topic, events_topic
from hourmark.records.hours import Hour
from hourmark_etl.ledger.partitions.offset_gaps import all_gaps, open_gaps
from hourmark_etl.recovery.lost_ends import LostEndDetector
from hourmark_etl.recovery.offset_records import OffsetBackupWriter

from .stories import grows, polls, writes

pytestmark = pytest.mark.slow

CLICKS = events_topic("click")


@pytest.fixture
def world(ledgers: Path, template: Path) -> Iterator[World]:
    """One whose first hour is closed; clicks are staged in the next one."""
    world = World(ledgers, template)
    try:
        begin(world)
        writes(world, "view")
        polls(world, FIRST_HOUR)
        for _ in range(3):
            writes(world, "click")
            arrive(world)
        yield world
    finally:
        world.end()


def stage_only(world: World, topics: Collection[str]) -> None:
    """A micro-batch of these topics (edge names)."""
    positions, logs = world.pipeline.positions(), world.pipeline.central.logs
    ends = {
        p: len(logs[p].records)
        for p in positions
        if world.pipeline.topics.at_edge(p.topic) in topics
    }
    world.pipeline.stage_until({p: s.next_offset for p, s in positions.items()} | ends, 1.0)


def ended_but_for(world: World, topic: str) -> None:
    """The hour has ended; all that was written is mirrored, and staged, but for this topic."""
    until(world, hour(1))
    world.producers.report(0)
    world.pipeline.mirror_all(0)
    stage_only(world, {*CONTROL, *map(events_topic, TYPES)} - {topic})


def goes_on(world: World) -> None:
    """For longer than a cut waits before it asks again."""
    for _ in range(12):
        report(world)
        world.closer.step()
        world.clock.advance(2)


def held(world: World, ended: Hour | None = None) -> None:
    """By a gap of promises: no type closes."""
    (gap,) = open_gaps(world.database)
    assert gap.topic == AUDIT and "its log lost records" in gap.what
    polls(world, ended)
    assert {at for _, at in world.judge.manifests} == {FIRST_HOUR}


def forced_and_then_proved(world: World) -> None:
    """An override accepts what was lost; the hour after the next begins after it."""
    override_all(world)
    polls(world)
    for n in (2, 3):
        writes(world, "click")
        polls(world, hour(n))
    assert open_gaps(world.database) == []
    assert [grade(world, "click", hour(n)) for n in (1, 3)] == ["forced", "proved"]
    world.judge.check()


def test_a_cut_that_finds_the_log_of_promises_shorter_holds_every_type(world: World) -> None:
    world.pipeline.shorten((AUDIT,), 6)
    until(world, hour(1))
    world.producers.report(0)
    world.pipeline.mirror_all(0)
    positions = world.pipeline.positions()
    with pytest.MonkeyPatch.context() as patch:  # the batch was planned before
        patch.setattr("hourmark_etl.ledger.batches.restart_truncated_logs", lambda *_: None)
        stage_only(world, {HOSTS})
    world.closer.step()
    grows(world, 4)
    audit = Partition(central_topic(AUDIT, world.pipeline.mirror.alias or ""), 0)
    assert len(world.pipeline.central.logs[audit].records) > positions[audit].next_offset
    held(world)
    forced_and_then_proved(world)


def test_a_ledger_that_is_lost_later_is_rebuilt_with_what_it_knew_of_it(world: World) -> None:
    world.ledgers.keep_checks(0)
    world.pipeline.shorten((AUDIT,), 6)
    world.pipeline.stage_all(0)
    OffsetBackupWriter(world.storage, world.database, world.clock).poll(world.closer.lease)
    grows(world, 4)
    assert lose_ledger(world).lost == [gap.what for gap in open_gaps(world.database)]
    held(world, hour(1))
    forced_and_then_proved(world)


def test_a_second_rebuild_knows_what_only_the_first_one_found(world: World) -> None:
    world.ledgers.keep_checks(0)
    world.pipeline.shorten((AUDIT,), 6)
    found = lose_ledger(world)  # no driver ever ran with it
    grows(world, 4)
    assert lose_ledger(world).lost == found.lost == [gap.what for gap in open_gaps(world.database)]
    held(world, hour(1))
    forced_and_then_proved(world)


@pytest.mark.slow
def test_a_cut_does_not_wait_for_events_that_their_log_has_lost(world: World) -> None:
    writes(world, "view")
    grows(world, 4)
    ended_but_for(world, CLICKS)
    for _ in range(3):
        world.closer.step()
    world.pipeline.shorten((CLICKS,), 3)
    goes_on(world)
    assert frontier(world, "view").hour == hour(2) and frontier(world).hour == hour(1)
    override(world)
    polls(world)
    assert grade(world, "click", hour(1)) == "forced"
    polls(world, hour(2))
    assert grade(world, "click", hour(2)) == "proved"


def test_a_cut_does_not_wait_for_promises_that_their_log_has_lost(world: World) -> None:
    grows(world, 4)
    ended_but_for(world, AUDIT)
    world.closer.step()
    world.pipeline.shorten((AUDIT,), 2)
    goes_on(world)
    assert frontier(world, "view").hour == hour(2), (
        "nothing that was staged is lost, and all that stands is"
    )
    world.judge.given_up |= world.producers.events.keys()
    world.judge.check()


def test_a_rebuild_lists_staged_events_that_their_log_has_lost(world: World) -> None:
    polls(world)
    world.ledgers.keep_checks(0)
    world.pipeline.shorten((CLICKS,), 2)
    lost = lose_ledger(world)
    assert lost.lost == [] and lost.staged_files > 0
    world.clean(0)
    polls(world, hour(1))
    assert grade(world, "click", hour(1)) == "proved"
    world.judge.check_end()


@pytest.mark.slow
def test_a_rebuild_that_finds_it_stages_that_log_from_its_start(world: World) -> None:
    for n in (1, 2, 3):
        writes(world, "click")
        polls(world, hour(n))
    world.ledgers.keep_checks(0)
    world.pipeline.shorten((CLICKS,), 5)
    assert lose_ledger(world).lost == []
    grows(world, 6)
    polls(world, hour(4))
    assert grade(world, "click", hour(4)) == "proved"
    world.judge.check_end()


def test_a_rebuild_lists_all_staged_events_of_a_log_that_lost_its_end(world: World) -> None:
    world.ledgers.keep_checks(0)
    world.pipeline.shorten((CLICKS,), 6)
    grows(world, 1)  # it is shorter still, and files of lost events end below its end
    lose_ledger(world)
    world.clean(0)
    polls(world, hour(1))
    assert grade(world, "click", hour(1)) == "proved"
    assert len(world.judge.where) == len(world.producers.events), (
        "all that was written, also what files alone hold"
    )


def test_the_same_once_it_has_grown_where_the_driver_had_seen_it(world: World) -> None:
    world.pipeline.shorten((CLICKS,), 6)
    world.pipeline.stage_all(0)
    world.ledgers.keep_checks(0)
    grows(world, 4)
    lose_ledger(world)
    polls(world, hour(1))
    assert grade(world, "click", hour(1)) == "proved"
    assert len(world.judge.where) == len(world.producers.events), (
        "all that was written, also what files alone hold"
    )


@pytest.mark.slow
def test_a_rebuild_compares_with_the_last_marker(world: World) -> None:
    for n in (1, 2, 3):
        writes(world, "click", "click")
        polls(world, hour(n))
    for path in staged_files(world, "events"):
        world.storage.delete(path)  # cleaned away: all of it is closed
    world.ledgers.keep_checks(0)
    staged = max(
        s.next_offset for p, s in world.pipeline.positions().items() if p.topic.endswith(CLICKS)
    )
    world.pipeline.shorten((CLICKS,), staged - 1)
    while (
        len(
            next(
                log for p, log in world.pipeline.central.logs.items() if p.topic.endswith(CLICKS)
            ).records
        )
        < staged - 2
    ):
        grows(world, 1)
    assert any("it is staged again from its start" in note for note in lose_ledger(world).notes)
    polls(world, hour(4))
    assert grade(world, "click", hour(4)) == "proved"
    world.judge.check_end()


def older_copy_goes_on(world: World, *lost: str) -> None:
    """A copy from before more was staged, while the central cluster lost the end of it too, and no
    driver looked.
    """
    world.ledgers.keep_checks(0)
    world.ledgers.back_up(0)
    for _ in range(4):
        writes(world, "click")
        arrive(world)
    world.ledgers.keep_checks(0)
    world.pipeline.shorten(lost, 6)
    world.ledgers.restore(0)
    assert world.seen["older copy goes on"] == 1


def nobody_looks_yet(world: World, *lost: str) -> None:
    """The same, before its driver has looked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.ledgers, "look_for_lost_ends", lambda: None)
        older_copy_goes_on(world, *lost)


def test_an_older_copy_knows_what_was_staged_and_lost_since(world: World) -> None:
    older_copy_goes_on(world, AUDIT, CLICKS)
    before = staged_files(world, "events")
    world.clean(0)
    assert staged_files(world, "events") == before, "a rebuild lists what they hold"
    held(world, hour(1))
    forced_and_then_proved(world)


@pytest.mark.slow
def test_it_knows_though_nobody_leads_a_topic_of_events_and_the_mirror_goes_on(
    world: World,
) -> None:
    nobody_looks_yet(world, AUDIT, CLICKS)
    central = world.pipeline.central
    clicks = Partition(central_topic(CLICKS, world.pipeline.mirror.alias or ""), 0)
    central.leaderless[clicks] = 1_000
    lost_ends = LostEndDetector(world.storage, world.database, central, world.pipeline.topics)
    lost_ends.poll(world.closer.lease, world.clock.now_ms())
    assert [gap.topic for gap in all_gaps(world.database)] == [AUDIT] and not lost_ends.is_done
    central.leaderless.clear()
    lost_ends.poll(world.closer.lease, world.clock.now_ms())
    assert [gap.topic for gap in all_gaps(world.database)] == [AUDIT, CLICKS] and lost_ends.is_done
    held(world, hour(1))


def test_it_remembers_where_promises_ended_when_it_asked_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody_looks_yet(world, AUDIT)
    lost_ends = LostEndDetector(
        world.storage, world.database, world.pipeline.central, world.pipeline.topics
    )
    with monkeypatch.context() as patch, pytest.raises(Unavailable):
        patch.setattr("hourmark_etl.recovery.lost_ends.read_notes", away)
        lost_ends.poll(world.closer.lease, world.clock.now_ms())
    grows(world, 8)
    lost_ends.poll(world.closer.lease, world.clock.now_ms())
    held(world, hour(1))


def away(*_: object) -> None:
    raise Unavailable("storage does not answer")


def test_files_of_promises_that_cannot_be_read_hold_where_logs_lost_their_ends(
    world: World,
) -> None:
    nobody_looks_yet(world, AUDIT, CLICKS)
    for path in staged_files(world, "audit"):
        content = world.storage.read(path)
        world.storage.delete(path)
        world.storage.write_new(path, content[:-20])
    world.ledgers.look_for_lost_ends()
    (gap,) = open_gaps(world.database)
    assert gap.topic == AUDIT and "staged files cannot be read" in gap.what


def test_what_it_does_not_list_a_rebuild_does(world: World) -> None:
    older_copy_goes_on(world, CLICKS)
    world.clean(0)
    assert open_gaps(world.database) == []
    world.ledgers.keep_checks(0)
    lose_ledger(world)
    polls(world, hour(1))
    assert grade(world, "click", hour(1)) == "proved"
    assert len(world.judge.where) == len(world.producers.events), (
        "all that was written, also what files alone hold"
    )


def test_a_batch_that_was_not_committed_is_no_lost_end(world: World) -> None:
    writes(world, "click")
    world.pipeline.mirror_all(0)
    logs = world.pipeline.central.logs
    world.pipeline.stage_until({p: len(logs[p].records) for p in world.pipeline.positions()}, 0.0)
    assert world.seen["driver killed before the ledger commit"] == 1
    world.ledgers.look_for_lost_ends()
    assert all_gaps(world.database) == []
