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


def why_unavailable(environment: TrialEnvironment) -> str:
    """Return the reason why brokers cannot be stopped safely, for the report.

    Brokers can be stopped if operations to stop and start them are available, topics have three
    replicas, and all partitions of the edge cluster are in sync.

    Args:
        environment: The clusters, the operations on servers, and the user's options.

    Returns:
        The reason; "" if brokers can be stopped.

    Raises:
        Unavailable: The edge cluster does not answer.
    """
    if reason := describe_missing_operations(environment.operations, "stop_broker", "start_broker"):
        return reason
    if environment.edge.replication < REPLICAS_MIN:
        return (
            "needs three edge brokers, so that two remain in sync; the edge cluster has "
            f"{len(environment.edge.ids)}"
        )
    if behind := environment.edge.count_out_of_sync():
        return (
            f"{behind} partitions of the edge cluster are not fully in sync; no broker is stopped "
            "before they are"
        )
    return ""


def stop_brokers_temporarily(
    trial: TrialRun, brokers: Sequence[int], description: str, *, wiped: bool = False
) -> bool:
    """Stop brokers, restart them after a while, and wait until the producer's load recovers.

    The brokers stay down for a tenth of the duration of the load, but at least 2 s. They are only
    stopped if all partitions of the edge cluster are in sync, because a partition could otherwise
    lose its last replica. If this is not the case within 180 s, the outage is recorded as not
    tried.

    Args:
        trial: The running trial.
        brokers: Ids of the brokers to stop.
        description: Description of the outage for the report.
        wiped: Whether to empty the disks of the brokers before they start.

    Returns:
        True if the outage took place; False if it was recorded as not tried.

    Raises:
        RecoveryFailed: The brokers did not recover within 180 s.
    """
    environment, operations = trial.environment, trial.environment.operations
    assert operations.stop_broker and operations.start_broker, "why_unavailable was checked"
    stop, start, wipe = (
        operations.stop_broker,
        operations.start_broker,
        operations.wipe_broker if wiped else None,
    )
    if not environment.wait_until(
        lambda: _is_in_sync(environment), RECOVERY_SECONDS, trial.poll_mirror
    ):
        trial.record_not_tried(description, "partitions of the edge cluster are not fully in sync")
        return False

    def empty_disks() -> None:
        if wipe is not None:
            call_for_each_broker(wipe, brokers)

    return trial.inject_fault(
        description,
        lambda: call_for_each_broker(stop, brokers),
        lambda: call_for_each_broker(start, brokers),
        environment.options.outage_s,
        lambda: environment.edge.are_all_in_sync(trial.load.placement.topics),
        is_effective=lambda: not any(map(environment.edge.responds, brokers)),
        before_undo=empty_disks,
    )


def _is_in_sync(environment: TrialEnvironment) -> bool:
    try:
        return not environment.edge.count_out_of_sync()
    except Unavailable:
        return False
