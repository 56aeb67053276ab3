"""The real restager on a played central cluster, whose retention may have passed."""

from __future__ import annotations

from tests.support.simulator.pipeline import PlayedRestager
from tests.support.simulator.sites import ALIAS
from tests.support.simulator.world import World

from hourmark.kafka.topic_names import central_topic
from hourmark_etl.closing.engine import Engine


def play_restager(world: World) -> PlayedRestager:
    """A new closer stages files again by it, and reads none but for its own sake."""
    restager = PlayedRestager(world.pipeline)
    world.pipeline.restage = restager.restage  # type: ignore[method-assign]
    world.engine = lambda database: Engine(world.storage, database, world.config)  # type: ignore[method-assign]
    world.start_closer()
    return restager


def retention_passes(world: World, *topics: str) -> None:
    """The central cluster holds nothing any more of what these topics (edge names) had until
    now.
    """
    for p, log in world.pipeline.central.logs.items():
        if p.topic in [central_topic(t, ALIAS) for t in topics]:
            log.start = len(log.records)
