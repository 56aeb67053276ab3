"""Trial `brokers-replaced`: each broker in turn is stopped and returns with an empty disk."""

from __future__ import annotations

from hourmark_evaluate.clients.load_producer import constant_rate
from hourmark_evaluate.execution import broker_outage
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.trial_run import start_trial_run
from hourmark_evaluate.results import TrialResult


def why_unavailable(environment: TrialEnvironment) -> str:
    """Return the reason why brokers cannot be replaced safely, for the report.

    Brokers can be replaced if they can be stopped and started. If their disks can also be emptied,
    every partition of the edge cluster must have at least two replicas.

    Args:
        environment: The clusters, the operations on servers, and the user's options.

    Returns:
        The reason; "" if brokers can be replaced.

    Raises:
        Unavailable: The edge cluster does not answer.
    """
    if reason := broker_outage.why_unavailable(environment):
        return reason
    if environment.operations.wipe_broker is not None and (
        unreplicated := environment.edge.count_single_replica()
    ):
        return (
            f"{unreplicated} partitions of the edge cluster have only one replica, which "
            "--wipe-broker could destroy; omit the option, or add replicas"
        )
    return ""


def run_trial(environment: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial in which each broker is replaced in turn.

    A broker is replaced only when all replicas are in sync. If the operation to empty a disk is not
    available, brokers are only stopped and started.

    Args:
        environment: The clusters, which must allow brokers to be stopped and started.
        name: Name of the trial.
        title: Title for the report.

    Returns:
        The measurements of the trial, and the faults that were or could not be injected.

    Raises:
        RecoveryFailed: A broker did not recover, or the sent records cannot be read back.
        Unavailable: The edge cluster does not answer.
    """
    wiped = environment.operations.wipe_broker is not None
    with start_trial_run(
        environment, name, title, constant_rate(environment.options.steady_rate)
    ) as trial:
        trial.wait_under_load(1.0)
        how = "killed, and replaced by one with an empty disk" if wiped else "stopped and started"
        done = [
            broker_outage.stop_brokers_temporarily(
                trial, [broker], f"broker {broker} {how}", wiped=wiped
            )
            for broker in environment.edge.ids
        ]
        if wiped and all(done):
            trial.notes.append(
                f"all {len(done)} brokers were replaced: none of the disks to which the first "
                "records were written is left"
            )
        elif not wiped:
            trial.notes.append(
                "the brokers returned with their own disks; with --wipe-broker, they return with "
                "empty ones"
            )
        return trial.finish()
