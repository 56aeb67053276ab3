"""The trials, in the order of those that Kafka once failed: name → title, and how each is
played.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from hourmark_evaluate.results import Trial
from hourmark_evaluate.trials import backlog, leaders, load, producers, refusing, replaced
from hourmark_evaluate.world import World


class Play(NamedTuple):
    """`why_not` says what hinders it, "" where nothing does; `play` may say so too, of what shows
    only then.
    """

    title: str
    why_not: Callable[[World], str]
    play: Callable[[World, str, str], Trial]


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
        leaders.why_not,
        leaders.play,
    ),
    "producers": Play("brokers come and go, one producer stays", producers.why_not, producers.play),
}


def play(world: World, name: str) -> Trial:
    """One trial; a result without figures where it cannot be tried."""
    title, why_not, plays = TRIALS[name]
    if reason := why_not(world):
        return Trial(name=name, title=title, not_tried=reason)
    return plays(world, name, title)
