"""The trials, in the order of execution: title, precondition and implementation by name.

Each one repeats a situation in which Kafka failed in earlier systems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from hourmark_evaluate.execution import broker_outage
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.results import TrialResult
from hourmark_evaluate.trials import (
    backlog,
    brokers_replaced,
    leaders,
    load,
    mirror_refused,
    producers,
)


class TrialDefinition(NamedTuple):
    """A trial that can be run.

    Attributes:
        title: Title for the report.
        why_unavailable: Function that returns why the trial is not possible with these clusters; "" if it
            is possible.
        run: Function that runs the trial, given its environment, name and title. The result has a
            reason in `not_tried` if the trial turns out to be impossible.
    """

    title: str
    why_unavailable: Callable[[TrialEnvironment], str]
    run: Callable[[TrialEnvironment, str, str], TrialResult]


TRIALS: Final = {
    "load": TrialDefinition(
        "load at 7 to 3 over two topics, a day's curve compressed in time, then a burst",
        lambda _: "",
        load.run_trial,
    ),
    "brokers-replaced": TrialDefinition(
        "brokers removed and replaced under load",
        brokers_replaced.why_unavailable,
        brokers_replaced.run_trial,
    ),
    "backlog": TrialDefinition(
        "a consumer's backlog under live load", lambda _: "", backlog.run_trial
    ),
    "mirror-refused": TrialDefinition(
        "a mirror whose target refuses", mirror_refused.why_unavailable, mirror_refused.run_trial
    ),
    "leaders": TrialDefinition(
        "leaders killed and paused, of brokers and of the mirror; its workers killed",
        broker_outage.why_unavailable,
        leaders.run_trial,
    ),
    "producers": TrialDefinition(
        "brokers come and go, one producer stays",
        broker_outage.why_unavailable,
        producers.run_trial,
    ),
}


def run_trial_by_name(world: TrialEnvironment, name: str) -> TrialResult:
    """Run one trial and return its result.

    Args:
        world: The clusters and the user's options.
        name: Name of the trial, a key of `TRIALS`.

    Returns:
        The result; only a reason in `not_tried` if the trial is not possible with these clusters.

    Raises:
        KeyError: There is no trial of this name.
        NotBack: Servers did not recover from a disturbance, or sent records are unreadable.
        Unavailable: A cluster does not answer.
    """
    title, why_unavailable, run = TRIALS[name]
    if reason := why_unavailable(world):
        return TrialResult(name=name, title=title, not_tried=reason)
    return run(world, name, title)
