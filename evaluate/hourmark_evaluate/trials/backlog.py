"""Trial `backlog`: a consumer starts with a backlog and must catch up while the load continues."""

from __future__ import annotations

from hourmark_evaluate.clients.load_producer import constant_rate
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.trial_run import start_trial_run
from hourmark_evaluate.results import BacklogResult, TrialResult
from hourmark_evaluate.trials.load import SHARES


def run_trial(environment: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial in which a consumer catches up with a backlog while the load continues.

    The consumer has caught up when less than one second of acknowledged records is left to read.

    Args:
        environment: The clusters and the user's options.
        name: Name of the trial.
        title: Title for the report.

    Returns:
        The measurements of the trial.

    Raises:
        RecoveryFailed: The sent records cannot be read back.
        Unavailable: A cluster does not answer.
    """
    rate, away_s = environment.options.rate / 2, environment.options.seconds / 2
    with start_trial_run(environment, name, title, constant_rate(rate), shares=SHARES) as trial:
        trial.wait_under_load(away_s)
        waiting, began_s = trial.load.acknowledged, trial.load.now_s
        trial.report_progress(
            f"{waiting:,} records are waiting; the consumer starts while the load continues"
        )
        group = trial.start_group_consumer()
        environment.wait_until(
            lambda: group.error != "" or trial.load.acknowledged - group.distinct_count < rate,
            environment.options.recovery_s,
        )
        caught_up = not group.error and trial.load.acknowledged - group.distinct_count < rate
        took_s = trial.load.now_s - began_s
        trial.backlog = BacklogResult(
            records=waiting,
            piled_s=round(began_s, 1),
            caught_up_s=round(took_s, 2) if caught_up else None,
            read_per_s=round(group.distinct_count / took_s, 1),
        )
        trial.wait_under_load(2.0)  # the consumer must not fall behind again
        return trial.finish()
