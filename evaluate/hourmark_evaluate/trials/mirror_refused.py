"""Trial `mirror-refused`: the target cluster refuses all writes for a while.

The mirror must not report the refused records as copied.
"""

from __future__ import annotations

from hourmark.kafka.mirror import positions_topic
from hourmark.kafka.topic_names import central_topic
from hourmark_evaluate.clients.load_producer import constant_rate
from hourmark_evaluate.execution import mirror_state
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.server_operations import describe_missing_operations
from hourmark_evaluate.execution.trial_run import TrialRun, start_trial_run
from hourmark_evaluate.results import TrialResult

SETTLE_S = 2.0  # after a refusal begins, writes in flight may still succeed


def why_unavailable(environment: TrialEnvironment) -> str:
    """Return the reason why the target cluster cannot be made to refuse writes, for the report.

    The target is the central cluster, to which the mirror copies.

    Args:
        environment: The clusters, the operations on servers, and the user's options.

    Returns:
        The reason; "" if a central cluster and the operations are available.
    """
    if environment.central is None:
        return "needs a central cluster: --central HOST:PORT"
    return describe_missing_operations(environment.operations, "refuse_target", "accept_target")


def run_trial(environment: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial in which the target cluster refuses the writes of MirrorMaker 2 for a while.

    During the trial, the offsets that the mirror commits are compared with the records on the
    target.

    Args:
        environment: The clusters, which must allow the target to refuse writes.
        name: Name of the trial.
        title: Title for the report.

    Returns:
        The result. It contains only the reason in `not_tried` if the mirror does not copy, if the
        target accepted records during the refusal, or if the mirror's offsets cannot be read.

    Raises:
        RecoveryFailed: The target did not recover, or the sent records cannot be read back.
        Unavailable: A cluster does not answer.
    """
    with start_trial_run(
        environment, name, title, constant_rate(environment.options.steady_rate), mirrored=True
    ) as trial:
        if not mirror_state.wait_for_first_copy(trial):
            return TrialResult(
                name=name, title=title, not_tried=mirror_state.why_nothing_copied(trial)
            )
        trial.wait_under_load(environment.options.outage_s)
        if accepted := _refuse_writes(trial, 2 * environment.options.outage_s):
            return TrialResult(
                name=name,
                title=title,
                not_tried=(
                    f"the target accepted {accepted:,} records although it had to refuse them: "
                    "--refuse-target has no effect"
                ),
            )
        trial.wait_under_load(1.0)
        trial.notes.append(mirror_state.describe_worker_count(environment))
        result = trial.finish()
        if result.claims is not None and not result.claims.samples:
            return TrialResult(
                name=name,
                title=title,
                not_tried=(
                    f"topic {positions_topic(environment.alias)} of the central cluster contains "
                    "no positions of the mirror"
                ),
            )
        return result


def _refuse_writes(trial: TrialRun, duration_s: float) -> int:
    operations, mirror = trial.environment.operations, trial.mirror
    assert operations.refuse_target and operations.accept_target and mirror, (
        "why_unavailable was checked"
    )
    refuse, accept = operations.refuse_target, operations.accept_target
    (topic,) = (
        central_topic(topic, trial.environment.alias) for topic in trial.load.placement.topics
    )
    copied_at_start = copied_at_end = 0

    def start_refusal() -> None:
        nonlocal copied_at_start
        refuse(topic)
        trial.wait_under_load(SETTLE_S)
        copied_at_start = mirror.copied_count

    def read_copied_count() -> None:
        nonlocal copied_at_end
        copied_at_end = mirror.copied_count

    tried = trial.inject_fault(
        "the target refuses every write",
        start_refusal,
        lambda: accept(topic),
        duration_s,
        victim="mirror",
        before_undo=read_copied_count,
    )
    return copied_at_end - copied_at_start if tried else 0
