"""Each broker in turn is stopped and returns with an empty disk, until no original disk is left."""

from __future__ import annotations

from hourmark_evaluate.clients.load_producer import constant_rate
from hourmark_evaluate.execution import broker_outage
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.trial_run import start_trial_run
from hourmark_evaluate.results import TrialResult


def why_unavailable(world: TrialEnvironment) -> str:
    """Return why brokers cannot be replaced safely, as a reason for the report.

    Returns:
        The reason; "" if brokers can be stopped and, if their disks can be emptied, no partition of
        the edge cluster has only one replica.

    Raises:
        Unavailable: The edge cluster does not answer.
    """
    if reason := broker_outage.why_unavailable(world):
        return reason
    if world.hands.wipe_broker is not None and (alone := world.edge.of_one_copy()):
        return (
            f"{alone} partitions of the edge have one copy, which --wipe-broker could "
            "destroy; leave it out, or give them more"
        )
    return ""


def run_trial(world: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial in which each broker is replaced in turn, once all replicas are in sync.

    If the operation to empty a disk is not available, brokers are only stopped and started.

    Args:
        world: The clusters, which must allow brokers to be stopped and started.
        name: Name of the trial.
        title: Title for the report.

    Raises:
        NotBack: A broker did not recover, or the sent records cannot be read back.
        Unavailable: The edge cluster does not answer.
    """
    wiped = world.hands.wipe_broker is not None
    with start_trial_run(world, name, title, constant_rate(world.wish.steady_rate)) as stage:
        stage.pause(1.0)
        how = "killed, and replaced by one with an empty disk" if wiped else "stopped and started"
        done = [
            broker_outage.stop_brokers_for_a_while(
                stage, [broker], f"broker {broker} {how}", wiped=wiped
            )
            for broker in world.edge.ids
        ]
        if wiped and all(done):
            stage.notes.append(
                f"all {len(done)} brokers were replaced: none of the disks is left on "
                "which the first records were written"
            )
        elif not wiped:
            stage.notes.append(
                "the brokers that came back had their own disks; with --wipe-broker they "
                "would be new ones"
            )
        return stage.conclude()
