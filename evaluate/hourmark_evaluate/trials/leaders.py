"""Trial `leaders`: leading brokers and the mirror's leading worker are killed and paused.

A leading worker stays killed or paused until another worker leads. A killed worker returns as a new
worker; a paused one still assumes that it leads. At the end, all workers of the mirror are killed.
"""

from __future__ import annotations

from typing import Final

from hourmark.kafka.mirror import NO_LEADER, MirrorWorkers
from hourmark_evaluate.clients.load_producer import constant_rate
from hourmark_evaluate.execution import mirror_state
from hourmark_evaluate.execution.broker_outage import stop_brokers_temporarily
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.server_operations import (
    OnWorker,
    ServerOperations,
    describe_missing_operations,
    option_name,
)
from hourmark_evaluate.execution.trial_run import TrialRun, start_trial_run
from hourmark_evaluate.results import LeaderTakeover, TrialResult

# Longer than a broker's session (9 s): another broker leads by then, unknown to the old leader.
PAUSE_S = 15.0
# The removed worker's session (10 s) and an election on a busy machine.
TAKEOVER_LIMIT_S: Final = 90.0
_OPERATIONS: Final = {
    "killed": ("stop_worker", "start_worker"),
    "paused": ("pause_worker", "resume_worker"),
}


def run_trial(environment: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial in which partition leaders and workers of MirrorMaker 2 are killed and paused.

    If there is a central cluster, a mirror copies the topics, so that each change of leader also
    affects the mirror.

    Args:
        environment: The clusters, which must allow brokers to be stopped and started.
        name: Name of the trial.
        title: Title for the report.

    Returns:
        The measurements of the trial, and the faults that were or could not be injected.

    Raises:
        RecoveryFailed: Servers did not recover, or the sent records cannot be read back.
        Unavailable: A cluster does not answer.
    """
    with start_trial_run(
        environment, name, title, constant_rate(environment.options.steady_rate), mirrored=True
    ) as trial:
        if is_copied := mirror_state.wait_for_first_copy(trial):
            trial.notes.append(mirror_state.describe_worker_count(environment))
        else:
            trial.notes.append(mirror_state.why_nothing_copied(trial))
            trial.mirror = None
        trial.wait_under_load(1.0)
        first = environment.edge.partition_leader(trial.load.placement.topics[0])
        stop_brokers_temporarily(trial, [first], f"broker {first}, a leader, killed")
        _pause_leading_broker(trial)
        if is_copied:
            remove_leading_workers(trial)
            _kill_mirror(trial)
        return trial.finish()


def _pause_leading_broker(trial: TrialRun) -> None:
    environment = trial.environment
    if reason := describe_missing_operations(
        environment.operations, "pause_broker", "resume_broker"
    ):
        trial.notes.append(f"a paused leader was not tried: {reason}")
        return
    topic = trial.load.placement.topics[0]
    leader = environment.edge.partition_leader(topic)
    pause, resume = environment.operations.pause_broker, environment.operations.resume_broker
    assert pause and resume, "no operation is missing"
    trial.inject_fault(
        f"broker {leader}, a leader, paused for {PAUSE_S:.0f} s",
        lambda: pause(leader),
        lambda: resume(leader),
        PAUSE_S,
        lambda: environment.edge.are_all_in_sync(trial.load.placement.topics),
        is_effective=lambda: not environment.edge.responds(leader),
    )


def _kill_mirror(trial: TrialRun) -> None:
    environment = trial.environment
    if reason := describe_missing_operations(environment.operations, "stop_mirror", "start_mirror"):
        trial.notes.append(f"a killed mirror was not tried: {reason}")
        return
    if not mirror_state.current_workers(environment).hosts:
        trial.notes.append(
            "a killed mirror was not tried: the central cluster does not report the mirror's "
            "workers, so it would not be known whether they were stopped"
        )
        return
    stop, start = environment.operations.stop_mirror, environment.operations.start_mirror
    assert stop and start, "no operation is missing"
    trial.inject_fault(
        "the mirror killed",
        stop,
        start,
        environment.options.outage_s,
        victim="mirror",
        is_effective=lambda: mirror_state.has_no_workers(environment),
    )


def why_leader_unavailable(workers: MirrorWorkers, operations: ServerOperations, how: str) -> str:
    """Return the reason why the leading worker of MirrorMaker 2 cannot be removed.

    The leading worker distributes the work to the other workers. The reason is for the report.

    Args:
        workers: The mirror's current workers.
        operations: The available operations on servers.
        how: How to remove the worker: "killed" or "paused".

    Returns:
        The reason; "" if the worker can be removed.
    """
    if workers.leader == NO_LEADER:
        return "the leading worker is unknown"
    if not workers.leader.address:
        return (
            "the address of the leading worker is unknown: the workers' own REST servers are off "
            "(dedicated.mode.enable.internal.rest)"
        )
    if len(workers.hosts) < 2:
        return "the mirror has one worker, so that no other one can lead"
    if workers.is_split:
        return (
            f"the leader's address is {workers.leader.address}, which workers on other hosts "
            "cannot reach; set mirror.rest_host to a name of each host, and restart the workers"
        )
    return describe_missing_operations(operations, *_OPERATIONS[how])


def remove_leading_workers(trial: TrialRun) -> None:
    """Kill the leading worker of MirrorMaker 2, and then pause its successor.

    The outcomes are added to `trial.takeovers`. If a worker cannot be killed or paused, the reason
    is added to `trial.notes`.

    Args:
        trial: The running trial; its topics must be mirrored.

    Raises:
        RecoveryFailed: The mirror's workers did not recover.
    """
    for how, names in _OPERATIONS.items():
        operations = trial.environment.operations
        workers = mirror_state.current_workers(trial.environment)
        reason = why_leader_unavailable(workers, operations, how)
        if not reason:
            remove, restore = (getattr(operations, name) for name in names)
            if not _remove_leading_worker(trial, workers, how, remove, restore):
                reason = (
                    f"{TAKEOVER_LIMIT_S:.0f} s after {option_name(names[0])} the same worker led, "
                    "so it was not removed"
                )
        if reason:
            trial.notes.append(f"the mirror's leading worker {how} was not tried: {reason}")


def _remove_leading_worker(
    trial: TrialRun, before: MirrorWorkers, how: str, remove: OnWorker, restore: OnWorker
) -> bool:
    # False if the same worker still led after 90 s, so that its removal had no effect
    environment = trial.environment
    takeover_s: float | None = None
    last = before.leader

    def another_leads() -> bool:
        nonlocal last
        last = mirror_state.current_workers(environment).leader
        return last not in (NO_LEADER, before.leader)

    def remove_and_wait() -> None:
        nonlocal takeover_s
        remove(before.leader.address)
        began_s = environment.clock.monotonic_s()
        if environment.wait_until(another_leads, TAKEOVER_LIMIT_S, trial.poll_mirror):
            takeover_s = round(environment.clock.monotonic_s() - began_s, 1)

    def is_complete() -> bool:
        now = mirror_state.current_workers(environment)
        return len(now.hosts) >= len(before.hosts) and now.leader != NO_LEADER

    tried = trial.inject_fault(
        f"of {len(before.hosts)} workers of the mirror the leading one {how}",
        remove_and_wait,
        lambda: restore(before.leader.address),
        environment.options.outage_s,
        is_complete,
        victim="mirror",
    )
    was_removed = takeover_s is not None or last != before.leader
    if tried and was_removed:
        trial.takeovers.append(
            LeaderTakeover(how=how, workers=len(before.hosts), another_led_s=takeover_s)
        )
    return was_removed or not tried
