"""What trials that take brokers away have in common."""

from __future__ import annotations

from collections.abc import Sequence

from hourmark_infra.evaluate.hands import OnBroker, missing
from hourmark_infra.evaluate.stage import Stage
from hourmark_infra.evaluate.world import World

COPIES_MIN = 3  # so that the loss of one broker leaves two in sync, which an acknowledgement needs


def why_not(world: World) -> str:
    """What hinders taking a broker away."""
    if reason := missing(world.hands, "stop_broker", "start_broker"):
        return reason
    if world.edge.replication < COPIES_MIN:
        return f"needs three brokers, so that two are left; the edge has {len(world.edge.ids)}"
    if behind := world.edge.out_of_sync():
        return f"{behind} partitions of the edge are not fully in sync; no broker is taken away before they are"
    return ""


def away(stage: Stage, brokers: Sequence[int], what: str, *, wiped: bool = False) -> None:
    """Stop these brokers, and start them after a while, their disks emptied in between where `wiped`."""
    hands = stage.world.hands
    assert hands.stop_broker and hands.start_broker, "why_not was asked"
    stop, start, wipe = hands.stop_broker, hands.start_broker, hands.wipe_broker if wiped else None

    def hurt() -> None:
        for broker in brokers:
            _both(stop, wipe, broker)

    def heal() -> None:
        for broker in brokers:
            start(broker)

    stage.disturb(what, hurt, heal, stage.world.wish.away_s, stage.world.edge.all_there)


def _both(stop: OnBroker, wipe: OnBroker | None, broker: int) -> None:
    stop(broker)
    if wipe is not None:
        wipe(broker)
