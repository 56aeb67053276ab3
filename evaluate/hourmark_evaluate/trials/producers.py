"""One producer, never restarted, while brokers stop and start, at the end all of them at once."""

from __future__ import annotations

from hourmark_evaluate.load import steady
from hourmark_evaluate.results import Trial
from hourmark_evaluate.stage import on_stage
from hourmark_evaluate.trials.outage import away
from hourmark_evaluate.world import World


def play(world: World, name: str, title: str) -> Trial:
    """Run the trial in which one producer keeps running while brokers stop and start.

    Each broker is stopped alone, then two brokers at once, then all.

    Args:
        world: The clusters, which must allow brokers to be stopped and started.
        name: Name of the trial.
        title: Title for the report.

    Raises:
        NotBack: The brokers did not recover, or the sent records cannot be read back.
        Unavailable: The edge cluster does not answer.
    """
    ids = world.edge.ids
    with on_stage(world, name, title, steady(world.wish.steady_rate)) as stage:
        stage.pause(1.0)
        for broker in ids:
            away(stage, [broker], f"broker {broker} away")
        away(stage, ids[:2], f"brokers {ids[0]} and {ids[1]} away at once")
        away(stage, ids, f"all {len(ids)} brokers away at once")
        return stage.conclude()
