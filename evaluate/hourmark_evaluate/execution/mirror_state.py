"""Functions shared by the trials of the mirror."""

from __future__ import annotations

from hourmark.errors import Unavailable
from hourmark.kafka.mirror import MirrorWorkers, read_workers
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.trial_run import TrialRun

FIRST_COPY_SECONDS = 60.0  # for a mirror to find a new topic; Hourmark's checks every few seconds


def wait_for_first_copy(trial: TrialRun) -> bool:
    """Wait up to 60 s until MirrorMaker 2 has copied the first record of a trial.

    Args:
        trial: The running trial.

    Returns:
        True if a record was copied; False if none was copied in time or if there is no mirror.
    """
    mirror = trial.mirror
    return mirror is not None and trial.environment.wait_until(
        lambda: mirror.copied_count > 0, FIRST_COPY_SECONDS, mirror.poll
    )


def why_nothing_copied(trial: TrialRun) -> str:
    """Return the reason why MirrorMaker 2 copied no record of a trial, for the report.

    Call this function only if `wait_for_first_copy` returned False.

    Args:
        trial: The running trial.

    Returns:
        A text that states what is missing or what failed, and which options to check.
    """
    environment, mirror = trial.environment, trial.mirror
    prefix = environment.options.mirrored_prefix
    if mirror is None:
        return "the mirror was not tried: needs --central HOST:PORT"
    if mirror.error:
        return f"the mirror could not be observed: {mirror.error}"
    return (
        f"the mirror copied no record of a new topic {prefix}… to {environment.alias}.{prefix}… "
        f"within {FIRST_COPY_SECONDS:.0f} s; check that it runs, that it copies such topics "
        "(--mirrored-prefix), that it prefixes their names (--alias; not the "
        "IdentityReplicationPolicy), and that it finds new topics in time (MirrorMaker's "
        "refresh.topics.interval.seconds, by default 600)"
    )


def current_workers(environment: TrialEnvironment) -> MirrorWorkers:
    """Return the current workers of MirrorMaker 2, as the central cluster reports them.

    Args:
        environment: The clusters and the user's options.

    Returns:
        The workers; an empty `MirrorWorkers` if there is no central cluster or if it does not
        answer.
    """
    return _read_workers(environment) or MirrorWorkers()


def has_no_workers(environment: TrialEnvironment) -> bool:
    """Return whether MirrorMaker 2 certainly has no running workers.

    Args:
        environment: The clusters and the user's options.

    Returns:
        True if the central cluster reports no worker. False if it reports one or does not answer.
    """
    return _read_workers(environment) == MirrorWorkers()


def _read_workers(environment: TrialEnvironment) -> MirrorWorkers | None:
    if environment.central is None:
        return None
    try:
        return read_workers(environment.central.cluster, environment.alias)
    except Unavailable:
        return None


def describe_worker_count(environment: TrialEnvironment) -> str:
    """Describe for the report how many workers of MirrorMaker 2 are running.

    Args:
        environment: The clusters and the user's options.

    Returns:
        A remark with the number of workers. If the central cluster reports no worker, the remark
        states that the number is unknown.
    """
    count = len(current_workers(environment).hosts)
    known = f"the mirror ran with {count} worker{'' if count == 1 else 's'}"
    return known if count else "the mirror's number of workers is unknown"
