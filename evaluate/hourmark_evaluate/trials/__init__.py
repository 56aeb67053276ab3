"""The trials of `hourmark evaluate`, one module per trial, and the registry `TRIALS`.

Each trial repeats a situation in which Kafka failed in earlier systems.

To add a trial:

1. Add a module to this package, named after the trial, with a function
   `run_trial(environment, name, title) -> TrialResult`. `backlog` is the shortest example. Most
   trials consist of `start_trial_run`, some calls of `TrialRun.inject_fault`, and
   `TrialRun.finish` (all in `hourmark_evaluate.execution.trial_run`).
2. Add an entry to `TRIALS`, at the position where the trial runs, with a precondition.
3. If the trial needs a new operation on servers, add it to `ServerOperations` and to `OPPOSITES` in
   `execution.server_operations`, to the local stack in `execution.local_stack`, and as a
   command-line option to `_COMMANDS` in `cli`.
4. If the trial observes something new, add a field to `TrialResult` in `results`, a property with
   its verdict to `verdicts`, and, for the report, text to `report.tables`.
5. Test the verdict with a planted fault in `tests/unit/evaluate/trials/test_verdicts.py`.
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
    """The definition of a trial, which tests Kafka under load, usually while faults are injected.

    Attributes:
        title: Title for the report.
        why_unavailable: Function that returns the reason why the trial is not possible with these
            clusters; "" if it is possible.
        run: Function that runs the trial, given its environment, name and title. If the trial turns
            out to be impossible, the result contains the reason in `not_tried`.
    """

    title: str
    why_unavailable: Callable[[TrialEnvironment], str]
    run: Callable[[TrialEnvironment, str, str], TrialResult]


# In the order of execution. Names are values of `--trial` and part of topic names.
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


def run_trial_by_name(environment: TrialEnvironment, name: str) -> TrialResult:
    """Run a trial, a test of Kafka under load, usually with injected faults.

    Args:
        environment: The clusters, the operations on servers, and the user's options.
        name: Name of the trial, a key of `TRIALS`.

    Returns:
        The result. If the trial is not possible with these clusters, it contains only the reason in
        `not_tried`.

    Raises:
        KeyError: There is no trial of this name.
        RecoveryFailed: Servers did not recover from a fault, or sent records are unreadable.
        Unavailable: A cluster does not answer.
    """
    title, why_unavailable, run = TRIALS[name]
    if reason := why_unavailable(environment):
        return TrialResult(name=name, title=title, not_tried=reason)
    return run(environment, name, title)
