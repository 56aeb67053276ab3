"""Leaders are removed.

The mirror's leading worker is removed until another one leads, and then returns.

If it was killed, it returns as a new worker. If it was paused, it still assumes that it leads.

Leaders are removed: leading brokers and the mirror's leading worker, killed and paused.

At the end, all workers of the mirror are killed.
"""

from __future__ import annotations

from typing import Final

from hourmark.kafka.mirror import NO_LEADER, MirrorWorkers
from hourmark_evaluate.clients.load_producer import constant_rate
from hourmark_evaluate.execution import mirror_state
from hourmark_evaluate.execution.broker_outage import stop_brokers_for_a_while
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.server_operations import (
    OnWorker,
    ServerOperations,
    describe_missing_operations,
    option_name,
)
from hourmark_evaluate.execution.trial_run import TrialRun, start_trial_run
from hourmark_evaluate.results import LeaderTakeover, TrialResult

TAKEOVER_LIMIT_S: Final = (
    90.0  # the removed worker's session (10 s) and an election on a busy machine
)
_OPERATIONS: Final = {
    "killed": ("stop_worker", "start_worker"),
    "paused": ("pause_worker", "resume_worker"),
}


def why_leader_unavailable(there: MirrorWorkers, hands: ServerOperations, how: str) -> str:
    """Return why the leading worker of a mirror cannot be removed, as a reason for the report.

    Args:
        there: The mirror's current workers.
        hands: The available operations on servers.
        how: "killed" or "paused".

    Returns:
        The reason; "" if it is possible.
    """
    if there.leader == NO_LEADER:
        return "who leads could not be told"
    if not there.leader.address:
        return (
            "the leader's address is not told: the workers' own REST servers are off "
            "(dedicated.mode.enable.internal.rest)"
        )
    if len(there.hosts) < 2:
        return "it takes two to be confused about who leads"
    if there.is_split:
        return (
            f"the leader's address is {there.leader.address}, where workers on other hosts look "
            "for it in vain; set "
            "mirror.rest_host to a name of each, and start them again"
        )
    return describe_missing_operations(hands, *_OPERATIONS[how])


def remove_leading_workers(stage: TrialRun) -> None:
    """Kill the mirror's leading worker and then pause the next leader, within a running trial.

    The outcomes are added to `stage.takeovers`. If one of the two is not possible, the reason is
    added to `stage.notes`.

    Args:
        stage: The running trial; its topics must be mirrored.

    Raises:
        NotBack: The mirror's workers did not recover.
    """
    for how, pair in _OPERATIONS.items():
        hands, there = stage.world.hands, mirror_state.current_workers(stage.world)
        reason = why_leader_unavailable(there, hands, how)
        if not reason:
            take, bring_back = (getattr(hands, hand) for hand in pair)
            if not _remove_leading_worker(stage, there, how, take, bring_back):
                reason = (
                    f"{TAKEOVER_LIMIT_S:.0f} s after {option_name(pair[0])} the same worker led: it was "
                    "not taken away"
                )
        if reason:
            stage.notes.append(f"the mirror's leading worker {how} was not tried: {reason}")


def _remove_leading_worker(
    stage: TrialRun, before: MirrorWorkers, how: str, take: OnWorker, bring_back: OnWorker
) -> bool:
    """Remove the leading worker until another one leads, and restore it.

    Returns:
        False if the same worker was still leading, so it was not removed; otherwise True, also if
        the disturbance failed and was recorded as not tried.
    """
    world = stage.world
    led_s: float | None = None
    last = before.leader

    def another_leads() -> bool:
        nonlocal last
        last = mirror_state.current_workers(world).leader
        return last not in (NO_LEADER, before.leader)

    def hurt() -> None:
        nonlocal led_s
        take(before.leader.address)
        began_s = world.clock.monotonic_s()
        if world.wait(another_leads, TAKEOVER_LIMIT_S, stage.look):
            led_s = round(world.clock.monotonic_s() - began_s, 1)

    def whole() -> bool:
        now = mirror_state.current_workers(world)
        return len(now.hosts) >= len(before.hosts) and now.leader != NO_LEADER

    tried = stage.disturb(
        f"of {len(before.hosts)} workers of the mirror the leading one {how}",
        hurt,
        lambda: bring_back(before.leader.address),
        world.wish.away_s,
        whole,
        victim="mirror",
    )
    was_away = led_s is not None or last != before.leader
    if tried and was_away:
        stage.takeovers.append(
            LeaderTakeover(how=how, workers=len(before.hosts), another_led_s=led_s)
        )
    return was_away or not tried


# Longer than a broker's session (9 s): another broker leads by then, unknown to the old leader.
PAUSE_S = 15.0


def run_trial(world: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial in which leading brokers and the mirror's workers are killed and paused.

    With a central cluster, the topics are mirrored, so that the mirror is affected by each change
    of leaders too.

    Args:
        world: The clusters, which must allow brokers to be stopped and started.
        name: Name of the trial.
        title: Title for the report.

    Raises:
        NotBack: Servers did not recover, or the sent records cannot be read back.
        Unavailable: A cluster does not answer.
    """
    with start_trial_run(
        world, name, title, constant_rate(world.wish.steady_rate), mirrored=True
    ) as stage:
        if copies := mirror_state.wait_for_first_copy(stage):
            stage.notes.append(mirror_state.describe_worker_count(world))
        else:
            stage.notes.append(mirror_state.why_nothing_copied(stage))
            stage.watch = None
        stage.pause(1.0)
        first = world.edge.leader(stage.load.plan.topics[0])
        stop_brokers_for_a_while(stage, [first], f"broker {first}, a leader, killed")
        _pause_leading_broker(stage)
        if copies:
            _disturb_mirror(stage)
        return stage.conclude()


def _pause_leading_broker(stage: TrialRun) -> None:
    world = stage.world
    if reason := describe_missing_operations(world.hands, "pause_broker", "resume_broker"):
        stage.notes.append(f"a paused leader was not tried: {reason}")
        return
    topic = stage.load.plan.topics[0]
    leader = world.edge.leader(topic)
    pause, resume = world.hands.pause_broker, world.hands.resume_broker
    assert pause and resume, "nothing is missing"
    stage.disturb(
        f"broker {leader}, a leader, paused for {PAUSE_S:.0f} s",
        lambda: pause(leader),
        lambda: resume(leader),
        PAUSE_S,
        lambda: world.edge.all_there(stage.load.plan.topics),
        gone=lambda: not world.edge.answers(leader),
    )


def _disturb_mirror(stage: TrialRun) -> None:
    world = stage.world
    remove_leading_workers(stage)
    if reason := describe_missing_operations(world.hands, "stop_mirror", "start_mirror"):
        stage.notes.append(f"a killed mirror was not tried: {reason}")
        return
    if not mirror_state.current_workers(world).hosts:
        stage.notes.append(
            "a killed mirror was not tried: who shares it is not told, so whether it is "
            "away cannot be seen"
        )
        return
    stop, start = world.hands.stop_mirror, world.hands.start_mirror
    assert stop and start, "nothing is missing"
    stage.disturb(
        "the mirror killed",
        stop,
        start,
        world.wish.away_s,
        victim="mirror",
        gone=lambda: mirror_state.has_no_workers(world),
    )
