"""What trials that take brokers away have in common."""

from __future__ import annotations

from collections.abc import Sequence

from hourmark.errors import Unavailable
from hourmark_evaluate.hands import each, missing
from hourmark_evaluate.stage import BACK_SECONDS, Stage
from hourmark_evaluate.world import World

COPIES_MIN = 3  # so that the loss of one broker leaves two in sync, which an acknowledgement needs


def why_not(world: World) -> str:
    """What hinders taking a broker away."""
    if reason := missing(world.hands, "stop_broker", "start_broker"):
        return reason
    if world.edge.replication < COPIES_MIN:
        return f"needs three brokers, so that two are left; the edge has {len(world.edge.ids)}"
    if behind := world.edge.out_of_sync():
        return (
            f"{behind} partitions of the edge are not fully in sync; no broker is taken away "
            "before they are"
        )
    return ""


def away(stage: Stage, brokers: Sequence[int], what: str, *, wiped: bool = False) -> bool:
    """Stop these brokers, and start them after a while, their disks emptied just before where
    `wiped`; whether that was tried.

    It is not while any partition is not fully in sync: with another broker away, it could be
    without a copy.
    """
    world, hands = stage.world, stage.world.hands
    assert hands.stop_broker and hands.start_broker, "why_not was asked"
    stop, start, wipe = hands.stop_broker, hands.start_broker, hands.wipe_broker if wiped else None
    if not world.wait(lambda: _in_sync(world), BACK_SECONDS, stage.look):
        stage.not_tried(what, "partitions of the edge are not fully in sync, these or others")
        return False

    def empty() -> None:
        if wipe is not None:
            each(wipe, brokers)

    return stage.disturb(
        what,
        lambda: each(stop, brokers),
        lambda: each(start, brokers),
        world.wish.away_s,
        lambda: world.edge.all_there(stage.load.plan.topics),
        gone=lambda: not any(map(world.edge.answers, brokers)),
        last=empty,
    )


def _in_sync(world: World) -> bool:
    try:
        return not world.edge.out_of_sync()
    except Unavailable:
        return False
