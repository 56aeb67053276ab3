"""Leader epochs of central logs: what lost its end is noticed however far it grew, and what lost
nothing needs no override.

A rebuilt ledger proves nothing of a time in which promises may have been lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.closing import arrive, frontier, grade, hour, override_all
from tests.support.rebuilding import begin, lose_ledger, staged_files
from tests.support.simulator.truth import FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, HOSTS, central_topic, events_topic
from hourmark_etl.ledger.partitions.offset_gaps import open_gaps
from hourmark_etl.ledger.partitions.read_errors import read_errors

from .stories import grows, polls, writes

pytestmark = pytest.mark.slow

CLICKS = events_topic("click")
LOSSES = [*itertools.product((False, True), repeat=4)]


@pytest.fixture
def world(ledgers: Path, template: Path) -> Iterator[World]:
    """One whose first hour is closed; clicks are staged in the next one."""
    world = World(ledgers, template)
    try:
        begin(world)
        writes(world, "view")
        polls(world, FIRST_HOUR)
        world.ledgers.keep_checks(0)
        for _ in range(3):
            writes(world, "click")
            arrive(world)
        yield world
    finally:
        world.end()


def elect(world: World) -> None:
    """Another leader of every partition, that has all of its log."""
    for log in world.pipeline.central.logs.values():
        log.elect()


@pytest.mark.parametrize("topic", [AUDIT, HOSTS])
def test_a_bad_record_behind_others_of_its_batch_is_no_lost_end(world: World, topic: str) -> None:
    """What is staged of the batch before it has an epoch of its own, or none: not that of the batch
    before.
    """
    world.producers.report(0)
    writes(world, "click")
    world.producers.append_record(Partition(topic, 0), b"key", b"no record of a service")
    for _ in range(2):  # it is tried again
        arrive(world)
        (error,) = read_errors(world.database).values()
        central = Partition(central_topic(topic, world.pipeline.mirror.alias), 0)
        assert (
            error.topic_partition == central
            and world.pipeline.positions()[central].next_offset == error.offset
        )
        assert open_gaps(world.database) == []


def test_promises_that_were_lost_while_a_bad_one_behind_them_was_held_hold_every_type(
    world: World,
) -> None:
    for _ in range(4):
        writes(world, "click")
    world.producers.append_record(Partition(AUDIT, 0), b"key", b"no record of a service")
    arrive(world)
    (error,) = read_errors(world.database).values()
    world.pipeline.shorten([AUDIT], 6)
    for _ in range(9):
        writes(world, "click")
    world.pipeline.mirror_all(0)
    log = world.pipeline.central.logs[error.topic_partition]
    world.check = lambda: None  # type: ignore[method-assign]  # it knows of no bad record
    assert len(log.records) > error.offset, "its length tells nothing"
    polls(world, hour(1))
    assert [gap.topic for gap in open_gaps(world.database)] == [AUDIT]
    assert frontier(world).hour == hour(1)


@pytest.mark.slow
@pytest.mark.parametrize("grown", range(7))
def test_promises_that_were_lost_hold_every_type_however_far_their_log_grew(
    world: World, grown: int
) -> None:
    world.pipeline.shorten([AUDIT], 6)
    log = world.pipeline.central.logs[
        Partition(central_topic(AUDIT, world.pipeline.mirror.alias), 0)
    ]
    for _ in range(grown):
        writes(world, "click")
        world.pipeline.mirror_all(0)
    polls(world, hour(1))
    assert [gap.topic for gap in open_gaps(world.database)] == [AUDIT], len(log.records)
    assert frontier(world).hour == hour(1)


def test_events_that_were_lost_are_staged_again_where_their_log_grew_beyond_its_end(
    world: World,
) -> None:
    world.pipeline.shorten([CLICKS], 4)
    grows(world, 5)
    polls(world, hour(1))
    assert grade(world, "click", hour(1)) == "proved", "the lost ones stand in staged files"


def test_elections_that_lose_nothing_hold_nothing(world: World) -> None:
    for _ in range(3):
        elect(world)
        writes(world, "click")
        arrive(world)
    elect(world)
    polls(world, hour(1))
    assert open_gaps(world.database) == []
    assert grade(world, "click", hour(1)) == "proved"


@pytest.mark.slow
@pytest.mark.parametrize(("events_too", "grown", "files_gone", "kept"), LOSSES)
def test_nothing_is_proved_by_a_rebuilt_ledger_where_promises_may_be_lost(
    world: World, events_too: bool, grown: bool, files_gone: bool, kept: bool
) -> None:
    if kept:
        world.ledgers.keep_checks(0)
    world.pipeline.shorten([AUDIT, CLICKS] if events_too else [AUDIT], 6)
    if files_gone:
        gone = staged_files(world, "audit")[-3:] + (
            staged_files(world, "events")[-3:] if events_too else []
        )
        world.damages.lose(*gone)
    if grown:
        grows(world, 5)
    rebuilt = lose_ledger(world)
    assert any(AUDIT in what for what in rebuilt.lost)
    polls(world, hour(1))
    assert ("click", hour(1)) not in world.judge.manifests
    override_all(world)
    polls(world)
    if ("click", hour(1)) in world.judge.manifests:
        assert grade(world, "click", hour(1)) == "forced"


@pytest.mark.slow
def test_a_rebuild_after_elections_needs_no_override_once_a_later_promise_was_staged(
    world: World,
) -> None:
    elect(world)
    writes(world, "click")
    arrive(world)
    assert lose_ledger(world).lost == [], "the note of a staged file has the leader's epoch"
    polls(world, hour(1))
    assert grade(world, "click", hour(1)) == "proved"


def test_a_rebuild_after_elections_needs_no_override_where_the_record_of_offsets_has_the_epoch(
    world: World,
) -> None:
    elect(world)
    writes(world, "click")
    arrive(world)
    world.ledgers.keep_checks(0)
    for path in staged_files(world, "audit"):
        world.storage.delete(path)
    assert lose_ledger(world).lost == []


def test_a_leader_of_promises_of_which_nothing_was_staged_leaves_a_rebuild_without_evidence(
    world: World,
) -> None:
    elect(world)
    (what,) = lose_ledger(world).lost
    assert "its leader epoch is 1, and the last record known to be staged has 0" in what
    polls(world, hour(1))
    override_all(world)
    polls(world)
    assert grade(world, "click", hour(1)) == "forced"
    writes(world, "click")
    polls(world, hour(2))
    assert grade(world, "click", hour(2)) in ("forced", "proved")


def test_an_older_copy_of_the_ledger_learns_from_staged_files_that_promises_were_lost_though_their_log_grew(
    world: World,
) -> None:
    world.ledgers.back_up(0)
    for _ in range(2):
        writes(world, "click")
        arrive(world)
    world.pipeline.shorten([AUDIT], 4)
    grows(world, 5)
    world.ledgers.restore(0)
    assert [gap.topic for gap in open_gaps(world.database)] == [AUDIT]
    polls(world, hour(1))
    assert frontier(world).hour == hour(1)
