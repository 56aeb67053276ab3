"""The target refuses every write for a while. Does the mirror say “done” of what was refused?"""

from __future__ import annotations

from hourmark.topics import central_topic
from hourmark_infra.evaluate.hands import missing
from hourmark_infra.evaluate.load import steady
from hourmark_infra.evaluate.results import Trial
from hourmark_infra.evaluate.stage import Stage, on_stage
from hourmark_infra.evaluate.trials import copying
from hourmark_infra.evaluate.world import World

SEEN_S = 2.0  # after a refusal begins, writes that were under way may still land


def why_not(world: World) -> str:
    """What hinders it."""
    if world.central is None:
        return "needs a central cluster: --central HOST:PORT"
    return missing(world.hands, "refuse_target", "accept_target")


def play(world: World, name: str, title: str) -> Trial:
    """The mirror is asked all the time what it has copied, and the target what it holds."""
    with on_stage(world, name, title, steady(world.wish.steady_rate), mirrored=True) as stage:
        if not copying.begins(stage):
            return Trial(name=name, title=title, not_tried=copying.no_copy(world))
        stage.pause(world.wish.away_s)
        landed = _refuse(stage, 2 * world.wish.away_s)
        if landed:
            return Trial(
                name=name, title=title,
                not_tried=f"the target took {landed:,} records while it was to refuse: --refuse-target does not make it refuse",
            )  # fmt: skip
        stage.pause(1.0)
        stage.notes.append(copying.told_workers(world))
        return stage.conclude()


def _refuse(stage: Stage, away_s: float) -> int:
    """How many records landed on the target although it was to refuse."""
    hands, watch = stage.world.hands, stage.watch
    assert hands.refuse_target and hands.accept_target and watch, "why_not was asked"
    refuse, accept = hands.refuse_target, hands.accept_target
    topics = [central_topic(topic, stage.world.alias) for topic in stage.load.plan.topics]
    at_first = at_last = 0

    def hurt() -> None:
        nonlocal at_first
        for topic in topics:
            refuse(topic)
        stage.pause(SEEN_S)
        at_first = watch.arrived

    def heal() -> None:
        nonlocal at_last
        at_last = at_last or watch.arrived
        for topic in topics:
            accept(topic)

    stage.disturb("the target refuses every write", hurt, heal, away_s, victim="mirror")
    return at_last - at_first
