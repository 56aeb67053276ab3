"""A consumer is absent while the load runs, then starts and must catch up under the same load."""

from __future__ import annotations

from hourmark_evaluate.clients.load_producer import constant_rate
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.trial_run import start_trial_run
from hourmark_evaluate.results import BacklogResult, TrialResult
from hourmark_evaluate.trials.load import SHARES


def run_trial(world: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial in which a consumer catches up with a backlog while the load continues.

    The consumer has caught up when less than one second of acknowledged records is left to read.

    Args:
        world: The clusters and the user's options.
        name: Name of the trial.
        title: Title for the report.

    Raises:
        NotBack: The sent records cannot be read back.
        Unavailable: A cluster does not answer.
    """
    rate, away_s = world.wish.rate / 2, world.wish.seconds / 2
    with start_trial_run(world, name, title, constant_rate(rate), shares=SHARES) as stage:
        stage.pause(away_s)
        piled, began_s = stage.load.acknowledged, stage.load.now_s
        stage.say(f"{piled:,} records are waiting; the consumer begins, and the load goes on")
        group = stage.join_group()
        world.wait(
            lambda: group.error != "" or stage.load.acknowledged - group.read < rate,
            world.wish.recovery_s,
        )
        done = not group.error and stage.load.acknowledged - group.read < rate
        took_s = stage.load.now_s - began_s
        stage.backlog = BacklogResult(
            records=piled,
            piled_s=round(began_s, 1),
            caught_up_s=round(took_s, 2) if done else None,
            read_per_s=round(group.read / took_s, 1),
        )
        stage.pause(2.0)  # the consumer must not fall behind again
        return stage.conclude()
