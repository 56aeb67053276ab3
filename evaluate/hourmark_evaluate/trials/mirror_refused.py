"""The target cluster refuses all writes for a while; the mirror must not report them as copied."""

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


def why_unavailable(world: TrialEnvironment) -> str:
    """Return why the target cluster cannot be made to refuse writes, as a reason for the report.

    Returns:
        The reason; "" if a central cluster and the operations are available.
    """
    if world.central is None:
        return "needs a central cluster: --central HOST:PORT"
    return describe_missing_operations(world.hands, "refuse_target", "accept_target")


def run_trial(world: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial in which the target cluster refuses the mirror's writes for a while.

    Meanwhile, the positions that the mirror commits are compared with the records on the target.

    Args:
        world: The clusters, which must allow the target to refuse writes.
        name: Name of the trial.
        title: Title for the report.

    Returns:
        The result; only a reason in `not_tried` if the mirror does not copy, if the target accepted
        records during the refusal, or if the mirror's positions cannot be read.

    Raises:
        NotBack: The target did not recover, or the sent records cannot be read back.
        Unavailable: A cluster does not answer.
    """
    with start_trial_run(
        world, name, title, constant_rate(world.wish.steady_rate), mirrored=True
    ) as stage:
        if not mirror_state.wait_for_first_copy(stage):
            return TrialResult(
                name=name, title=title, not_tried=mirror_state.why_nothing_copied(stage)
            )
        stage.pause(world.wish.away_s)
        if landed := _refuse_writes(stage, 2 * world.wish.away_s):
            return TrialResult(
                name=name,
                title=title,
                not_tried=(
                    f"the target took {landed:,} records while it was to refuse: "
                    "--refuse-target does not make it refuse"
                ),
            )
        stage.pause(1.0)
        stage.notes.append(mirror_state.describe_worker_count(world))
        trial = stage.conclude()
        if trial.claims is not None and not trial.claims.samples:
            unread = (
                "what the mirror claims could not be read: topic "
                f"{positions_topic(world.alias)} of the central cluster"
            )
            return TrialResult(
                name=name, title=title, not_tried=f"{unread} tells no positions of it"
            )
        return trial


def _refuse_writes(stage: TrialRun, away_s: float) -> int:
    """Make the target refuse writes, and return how many records it accepted nevertheless.

    If the refusal failed and was recorded as not tried, the result is 0.
    """
    hands, watch = stage.world.hands, stage.watch
    assert hands.refuse_target and hands.accept_target and watch, "why_not was asked"
    refuse, accept = hands.refuse_target, hands.accept_target
    (topic,) = (central_topic(topic, stage.world.alias) for topic in stage.load.plan.topics)
    at_first = at_last = 0

    def hurt() -> None:
        nonlocal at_first
        refuse(topic)
        stage.pause(SETTLE_S)
        at_first = watch.arrived

    def last() -> None:
        nonlocal at_last
        at_last = watch.arrived

    tried = stage.disturb(
        "the target refuses every write",
        hurt,
        lambda: accept(topic),
        away_s,
        victim="mirror",
        last=last,
    )
    return at_last - at_first if tried else 0
