"""Functions shared by the trials that stop brokers."""

from __future__ import annotations

from collections.abc import Sequence

from hourmark.errors import Unavailable
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.server_operations import (
    call_for_each_broker,
    describe_missing_operations,
)
from hourmark_evaluate.execution.trial_run import RECOVERY_SECONDS, TrialRun

REPLICAS_MIN = 3  # without one broker, two replicas stay in sync, as an acknowledgement needs


def why_unavailable(world: TrialEnvironment) -> str:
    """Return why brokers cannot be stopped safely, as a reason for the report.

    Brokers can be stopped if operations to stop and start them are available, topics have three
    replicas, and all partitions of the edge cluster are in sync.

    Returns:
        The reason; "" if brokers can be stopped.

    Raises:
        Unavailable: The edge cluster does not answer.
    """
    if reason := describe_missing_operations(world.hands, "stop_broker", "start_broker"):
        return reason
    if world.edge.replication < REPLICAS_MIN:
        return f"needs three brokers, so that two are left; the edge has {len(world.edge.ids)}"
    if behind := world.edge.out_of_sync():
        return (
            f"{behind} partitions of the edge are not fully in sync; no broker is taken away "
            "before they are"
        )
    return ""


def stop_brokers_for_a_while(
    stage: TrialRun, brokers: Sequence[int], what: str, *, wiped: bool = False
) -> bool:
    """Stop brokers, start them again after a while, and wait for the load to recover.

    Nothing is done before all partitions of the edge cluster are in sync, because a partition could
    otherwise lose its last replica. If they are not within 180 s, the outage is recorded as not
    tried.

    Args:
        stage: The running trial.
        brokers: Ids of the brokers to stop.
        what: Description for the report.
        wiped: Whether to empty the disks of the brokers before they start.

    Returns:
        True if the outage took place; False if it was recorded as not tried.

    Raises:
        NotBack: The brokers did not recover within 180 s.
    """
    world, hands = stage.world, stage.world.hands
    assert hands.stop_broker and hands.start_broker, "why_not was asked"
    stop, start, wipe = hands.stop_broker, hands.start_broker, hands.wipe_broker if wiped else None
    if not world.wait(lambda: _in_sync(world), RECOVERY_SECONDS, stage.look):
        stage.not_tried(what, "partitions of the edge are not fully in sync, these or others")
        return False

    def empty() -> None:
        if wipe is not None:
            call_for_each_broker(wipe, brokers)

    return stage.disturb(
        what,
        lambda: call_for_each_broker(stop, brokers),
        lambda: call_for_each_broker(start, brokers),
        world.wish.away_s,
        lambda: world.edge.all_there(stage.load.plan.topics),
        gone=lambda: not any(map(world.edge.answers, brokers)),
        last=empty,
    )


def _in_sync(world: TrialEnvironment) -> bool:
    try:
        return not world.edge.out_of_sync()
    except Unavailable:
        return False
