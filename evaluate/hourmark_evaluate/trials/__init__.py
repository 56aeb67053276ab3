"""The trials, in the order of execution: title, precondition and implementation by name.

Each one repeats a situation in which Kafka failed in earlier systems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from hourmark_evaluate.results import Trial
from hourmark_evaluate.trials import backlog, leaders, load, outage, producers, refusing, replaced
from hourmark_evaluate.world import World


class Play(NamedTuple):
    """A trial that can be run.

    Attributes:
        title: Title for the report.
        why_unavailable: Function that returns why the trial is not possible with these clusters; "" if it
            is possible.
        run: Function that runs the trial, given its environment, name and title. The result has a
            reason in `not_tried` if the trial turns out to be impossible.
    """

    title: str
    why_unavailable: Callable[[World], str]
    run: Callable[[World, str, str], Trial]


TRIALS: Final = {
    "load": Play(
        "load at 7 to 3 over two topics, a day's curve compressed in time, then a burst",
        lambda _: "",
        load.play,
    ),
    "brokers-replaced": Play(
        "brokers removed and replaced under load", replaced.why_not, replaced.play
    ),
    "backlog": Play("a consumer's backlog under live load", lambda _: "", backlog.play),
    "mirror-refused": Play("a mirror whose target refuses", refusing.why_not, refusing.play),
    "leaders": Play(
        "leaders killed and paused, of brokers and of the mirror; its workers killed",
        outage.why_not,
        leaders.play,
    ),
    "producers": Play("brokers come and go, one producer stays", outage.why_not, producers.play),
}


def play(world: World, name: str) -> Trial:
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
        return Trial(name=name, title=title, not_tried=reason)
    return run(world, name, title)
