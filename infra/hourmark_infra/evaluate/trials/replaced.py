"""Each broker in turn is taken away and comes back as a new one, with an empty disk, until none of the first disks is left."""

from __future__ import annotations

from hourmark_infra.evaluate.load import steady
from hourmark_infra.evaluate.results import Trial
from hourmark_infra.evaluate.stage import on_stage
from hourmark_infra.evaluate.trials.outage import away
from hourmark_infra.evaluate.trials.outage import why_not as why_not
from hourmark_infra.evaluate.world import World


def play(world: World, name: str, title: str) -> Trial:
    """One after the other, each once all replicas are in sync again."""
    wiped = world.hands.wipe_broker is not None
    with on_stage(world, name, title, steady(world.wish.steady_rate)) as stage:
        stage.pause(1.0)
        for broker in world.edge.ids:
            how = "killed, and replaced by one with an empty disk" if wiped else "stopped and started"
            away(stage, [broker], f"broker {broker} {how}", wiped=wiped)
        stage.notes.append(
            f"all {len(world.edge.ids)} brokers were replaced: none of the disks is left on which the first records were written"
            if wiped
            else "the brokers that came back had their own disks; with --wipe-broker they would be new ones"
        )
        return stage.conclude()
