"""A story, played in a world with a rule taken away, or whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.support.closing import send, until
from tests.support.rebuilding import begin
from tests.support.simulator.sites import FakeCluster
from tests.support.simulator.truth import Broken
from tests.support.simulator.world import World

from hourmark.records.hours import Hour
from hourmark_etl.closing.engine import Engine

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
Story = Callable[[World], None]


def writes(world: World, *types: str) -> None:
    """A range with an event of now of each type, acknowledged."""
    send(world, types, world.clock.now_ms())


def polls(world: World, ended: Hour | None = None) -> None:
    """The closer polls some times, perhaps once this hour has ended: as far as it comes.

    What can be mirrored of the control topics stays as it is.
    """
    if ended is not None:
        until(world, ended)
    if not any(world.producers.edge.leaderless.values()) and not world.driver_clock.ahead_ms:
        world.producers.report(0)
        world.pipeline.mirror_all(0)
    world.pipeline.stage_all(0)
    for _ in range(8):
        world.close_step(0)
        world.check()
        world.clock.advance(2)


def grows(world: World, ranges: int) -> None:
    """What comes takes the places of records that central logs lost, perhaps beyond where they
    ended.
    """
    for _ in range(ranges):
        writes(world, "click")
        world.pipeline.mirror_all(0)


def unknown_is_an_offset(patch: Patch) -> None:
    """-1001 is taken for an offset, as librdkafka gives it."""
    patch.setattr(FakeCluster, "offset_without_leader", -1001)
    patch.setattr(
        "hourmark_etl.closing.cut.edge.partitions_ahead", lambda ends, positions: []
    )  # it would stumble over them
    patch.setattr(
        "hourmark_etl.closing.cut.clusters.record_truncated_audit_logs", lambda *_: None
    )  # so would a look for lost ends


def played(story: Callable[[World], None], folder: Path, template: Path) -> Mapping[str, int]:
    """The story and its end: what was seen. Broken where the promise does not hold."""
    world = World(folder, template)
    try:
        begin(world)
        story(world)
        world.driver_clock.ahead_ms = 0
        world.drain()
        if not world.judge.given_up:
            world.judge.check_end()
    finally:
        world.end()
    return world.seen


def is_found(plant: Plant, story: Story, patch: Patch, folder: Path, template: Path) -> None:
    """The story with the fault breaks the promise, by the engine alone: not only because two proofs
    differ.
    """
    patch.setattr(
        World, "engine", lambda world, database: Engine(world.storage, database, world.config)
    )
    plant(patch)
    with pytest.raises(Broken) as found:
        played(story, folder, template)
    print(f"{plant.__name__}: {found.value}")


def without_epochs(patch: Patch) -> None:
    """Nothing has leader epochs, as nothing of version 0.3.0 has: logs are compared by where they
    end alone.
    """
    patch.setattr("hourmark_etl.staging.plan.find_resume_offset", lambda *_: None)
    patch.setattr(FakeCluster, "has_epochs", False)
