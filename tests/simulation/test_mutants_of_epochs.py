"""Faults planted in what is done with leader epochs: each is played as a story, and must be found.

The same story without the planted fault keeps the promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.closing import arrive, hour
from tests.support.rebuilding import lose_ledger, staged_files
from tests.support.simulator.truth import EDGE_PARTITIONS, FIRST_HOUR
from tests.support.simulator.world import World
from tests.support.tiers import representative

from hourmark.kafka.partitions_reader import StartOffset
from hourmark.kafka.topic_names import AUDIT, events_topic
from hourmark_etl.model import StagingPosition

from .stories import Patch, Plant, Story, grows, is_found, played, polls, without_epochs, writes

pytestmark = pytest.mark.slow


def logs_grow_beyond_what_they_lost(world: World) -> None:
    """The central cluster loses the last promises and events, which are staged; others come before
    anybody looks.
    """
    writes(world, "view")
    polls(world, FIRST_HOUR)
    for _ in range(3):
        writes(world, "click")
        arrive(world)
    world.pipeline.shorten([AUDIT, events_topic("click")], 6)
    grows(world, 5)
    polls(world, hour(1))


def ledger_and_promises_are_lost(world: World) -> None:
    """The same, and the staged files of promises and events are gone, and the ledger before a
    driver looked.
    """
    writes(world, "view")
    polls(world, FIRST_HOUR)
    world.ledgers.keep_checks(0)
    for _ in range(3):
        writes(world, "click")
        arrive(world)
    world.pipeline.shorten([AUDIT, events_topic("click")], 6)
    world.damages.lose(*staged_files(world, "audit")[-3:], *staged_files(world, "events")[-3:])
    grows(world, 5)
    lose_ledger(world)
    polls(world, hour(1))
    world.judge.given_up |= world.producers.events.keys()


def another_leader_writes_markers(world: World) -> None:
    """A whole log gets another leader, and transactions without a record end under it."""
    writes(world, "view")
    polls(world, FIRST_HOUR)
    writes(world, "click")
    arrive(world)
    for log in world.pipeline.central.logs.values():
        log.elect()
    for p in EDGE_PARTITIONS:
        world.pipeline.mirror.abort(p, 1)
    arrive(world)
    polls(world, hour(1))


def reader_ignores_epochs(patch: Patch) -> None:
    """Staging goes on at its position, whatever the log's leaders say."""
    patch.setattr("hourmark_etl.staging.plan.find_resume_offset", lambda *_: None)


def rebuild_ignores_epochs(patch: Patch) -> None:
    """A rebuild takes every log that is long enough for whole."""
    without_epochs(patch)


def epoch_of_the_position(patch: Patch) -> None:
    """The last record's epoch is taken for that of the position, behind markers of another
    leader.
    """

    def begin(p: StagingPosition, _: int) -> StartOffset:
        return StartOffset(p.next_offset, p.leader_epoch)

    patch.setattr("hourmark_etl.staging.plan.find_resume_offset", begin)


STORIES: Mapping[str, tuple[Plant, Story]] = {
    "reader-ignores-epochs": (reader_ignores_epochs, logs_grow_beyond_what_they_lost),
    "rebuild-ignores-epochs": (rebuild_ignores_epochs, ledger_and_promises_are_lost),
    "epoch-of-the-position": (epoch_of_the_position, another_leader_writes_markers),
}


@pytest.mark.parametrize("name", representative([*STORIES]))
def test_a_planted_fault_is_found(
    name: str, monkeypatch: Patch, ledgers: Path, template: Path
) -> None:
    is_found(*STORIES[name], monkeypatch, ledgers, template)


@pytest.mark.parametrize("name", representative([*STORIES]))
def test_the_same_story_holds_without_the_fault(name: str, ledgers: Path, template: Path) -> None:
    seen = played(STORIES[name][1], ledgers, template)
    assert seen["buckets proved"] > 0
    assert (seen["buckets forced"] > 0) == (STORIES[name][0] is not epoch_of_the_position), seen
