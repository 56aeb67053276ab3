"""Leaders are removed: leading brokers and the mirror's leading worker, killed and paused.

At the end, all workers of the mirror are killed.
"""

from __future__ import annotations

from hourmark_evaluate.hands import missing
from hourmark_evaluate.load import steady
from hourmark_evaluate.results import Trial
from hourmark_evaluate.stage import Stage, on_stage
from hourmark_evaluate.trials import copying, mirror_leader
from hourmark_evaluate.trials.outage import away
from hourmark_evaluate.world import World

# Longer than a broker's session (9 s): another broker leads by then, unknown to the old leader.
PAUSE_S = 15.0


def play(world: World, name: str, title: str) -> Trial:
    """Run the trial in which leading brokers and the mirror's workers are killed and paused.

    With a central cluster, the topics are mirrored, so that the mirror is affected by each change
    of leaders too.

    Args:
        world: The clusters, which must allow brokers to be stopped and started.
        name: Name of the trial.
        title: Title for the report.

    Raises:
        NotBack: Servers did not recover, or the sent records cannot be read back.
        Unavailable: A cluster does not answer.
    """
    with on_stage(world, name, title, steady(world.wish.steady_rate), mirrored=True) as stage:
        if copies := copying.begins(stage):
            stage.notes.append(copying.told_workers(world))
        else:
            stage.notes.append(copying.no_copy(stage))
            stage.watch = None
        stage.pause(1.0)
        first = world.edge.leader(stage.load.plan.topics[0])
        away(stage, [first], f"broker {first}, a leader, killed")
        _pause(stage)
        if copies:
            _mirror(stage)
        return stage.conclude()


def _pause(stage: Stage) -> None:
    world = stage.world
    if reason := missing(world.hands, "pause_broker", "resume_broker"):
        stage.notes.append(f"a paused leader was not tried: {reason}")
        return
    topic = stage.load.plan.topics[0]
    leader = world.edge.leader(topic)
    pause, resume = world.hands.pause_broker, world.hands.resume_broker
    assert pause and resume, "nothing is missing"
    stage.disturb(
        f"broker {leader}, a leader, paused for {PAUSE_S:.0f} s",
        lambda: pause(leader),
        lambda: resume(leader),
        PAUSE_S,
        lambda: world.edge.all_there(stage.load.plan.topics),
        gone=lambda: not world.edge.answers(leader),
    )


def _mirror(stage: Stage) -> None:
    world = stage.world
    mirror_leader.play(stage)
    if reason := missing(world.hands, "stop_mirror", "start_mirror"):
        stage.notes.append(f"a killed mirror was not tried: {reason}")
        return
    if not copying.workers(world).hosts:
        stage.notes.append(
            "a killed mirror was not tried: who shares it is not told, so whether it is "
            "away cannot be seen"
        )
        return
    stop, start = world.hands.stop_mirror, world.hands.start_mirror
    assert stop and start, "nothing is missing"
    stage.disturb(
        "the mirror killed",
        stop,
        start,
        world.wish.away_s,
        victim="mirror",
        gone=lambda: copying.nobody_shares(world),
    )
