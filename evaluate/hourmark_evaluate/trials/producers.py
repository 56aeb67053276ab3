"""Trial `producers`: one producer keeps running while brokers stop and start."""

from __future__ import annotations

from hourmark_evaluate.clients.load_producer import constant_rate
from hourmark_evaluate.execution.broker_outage import stop_brokers_temporarily
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.trial_run import start_trial_run
from hourmark_evaluate.results import TrialResult


def run_trial(environment: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial in which one producer keeps running while brokers stop and start.

    Each broker is stopped on its own, then two brokers at once, and then all brokers.

    Args:
        environment: The clusters, which must allow brokers to be stopped and started.
        name: Name of the trial.
        title: Title for the report.

    Returns:
        The measurements of the trial, and the faults that were or could not be injected.

    Raises:
        RecoveryFailed: The brokers did not recover, or the sent records cannot be read back.
        Unavailable: The edge cluster does not answer.
    """
    ids = environment.edge.ids
    with start_trial_run(
        environment, name, title, constant_rate(environment.options.steady_rate)
    ) as trial:
        trial.wait_under_load(1.0)
        for broker in ids:
            stop_brokers_temporarily(trial, [broker], f"broker {broker} away")
        stop_brokers_temporarily(trial, ids[:2], f"brokers {ids[0]} and {ids[1]} away at once")
        stop_brokers_temporarily(trial, ids, f"all {len(ids)} brokers away at once")
        return trial.finish()
