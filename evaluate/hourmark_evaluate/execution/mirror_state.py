"""Functions shared by the trials of the mirror."""

from __future__ import annotations

from hourmark.errors import Unavailable
from hourmark.kafka.mirror import MirrorWorkers
from hourmark.kafka.mirror import read_workers as workers_of
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.trial_run import TrialRun

FIRST_COPY_SECONDS = 60.0  # for a mirror to find a new topic; Hourmark's checks every few seconds


def wait_for_first_copy(stage: TrialRun) -> bool:
    """Wait up to 60 s for the mirror to copy the first record of the trial.

    Returns:
        True if the mirror copies the trial's topics; False if it does not or if there is no mirror.
    """
    watch = stage.watch
    return watch is not None and stage.world.wait(
        lambda: watch.arrived > 0, FIRST_COPY_SECONDS, watch.look
    )


def why_nothing_copied(stage: TrialRun) -> str:
    """Return why the mirror could not be tried, as a reason for the report.

    Call this function only after `begins` returned False.
    """
    world, watch = stage.world, stage.watch
    prefix = world.wish.mirrored_prefix
    if watch is None:
        return "the mirror was not tried: needs --central HOST:PORT"
    if watch.trouble:
        return f"the mirror could not be watched: {watch.trouble}"
    return (
        f"the mirror copied nothing of a new topic {prefix}… to {world.alias}.{prefix}… within "
        f"{FIRST_COPY_SECONDS:.0f} s: "
        "does it run, copy such topics (--mirrored-prefix), name its copies so (--alias; not "
        "the IdentityReplicationPolicy), "
        "and look for new ones often enough (MirrorMaker's refresh.topics.interval.seconds, by "
        "default 600)?"
    )


def current_workers(world: TrialEnvironment) -> MirrorWorkers:
    """Return the mirror's current workers according to the target cluster.

    Returns:
        The workers; none if there is no central cluster or if it does not answer.
    """
    return _read_workers(world) or MirrorWorkers()


def has_no_workers(world: TrialEnvironment) -> bool:
    """Return whether the target cluster reports that the mirror has no workers.

    If the target cluster does not answer, the result is False.
    """
    return _read_workers(world) == MirrorWorkers()


def _read_workers(world: TrialEnvironment) -> MirrorWorkers | None:
    """Return the mirror's workers; None if the target cluster does not report them."""
    if world.central is None:
        return None
    try:
        return workers_of(world.central.cluster, world.alias)
    except Unavailable:
        return None


def describe_worker_count(world: TrialEnvironment) -> str:
    """Return a remark for the report with the mirror's current number of workers.

    If the target cluster does not report any worker, the remark states that the number is unknown.
    """
    count = len(current_workers(world).hosts)
    known = f"the mirror ran with {count} worker{'' if count == 1 else 's'}"
    return known if count else "how many workers the mirror has could not be told"
