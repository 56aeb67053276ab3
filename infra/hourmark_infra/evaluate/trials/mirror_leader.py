"""A mirror's leading worker is taken away until another leads, and comes back.

Killed, it comes back as a new one; paused, as one that still believes that it leads.
"""

from __future__ import annotations

from typing import Final

from hourmark_infra.evaluate.hands import Hands, OnWorker, missing
from hourmark_infra.evaluate.results import Takeover
from hourmark_infra.evaluate.stage import Stage
from hourmark_infra.evaluate.trials import copying
from hourmark_infra.evaluate.trials.copying import Workers

TAKEN_OVER_S: Final = 90.0  # the session of who is gone (10 s), and an election on a busy machine
_PAIRS: Final = {"killed": ("stop_worker", "start_worker"), "paused": ("pause_worker", "resume_worker")}


def why_not(there: Workers, hands: Hands, how: str) -> str:
    """What hinders it."""
    if not there.leader:
        return "who leads could not be told"
    if there.number < 2:
        return "it takes two to be confused about who leads"
    return missing(hands, *_PAIRS[how])


def play(stage: Stage) -> None:
    """Each once; notes say what was not tried, and why."""
    for how, pair in _PAIRS.items():
        hands, there = stage.world.hands, copying.workers(stage.world)
        if reason := why_not(there, hands, how):
            stage.notes.append(f"the mirror's leading worker {how} was not tried: {reason}")
            continue
        take, bring_back = (getattr(hands, hand) for hand in pair)
        _without_leader(stage, there, how, take, bring_back)


def _without_leader(stage: Stage, before: Workers, how: str, take: OnWorker, bring_back: OnWorker) -> None:
    world = stage.world
    led_s: float | None = None

    def another_leads() -> bool:
        return copying.workers(world).leader not in ("", before.leader)

    def hurt() -> None:
        nonlocal led_s
        take(before.leader)
        began_s = world.clock.monotonic_s()
        if world.wait(another_leads, TAKEN_OVER_S, stage.look):
            led_s = round(world.clock.monotonic_s() - began_s, 1)

    def whole() -> bool:
        now = copying.workers(world)
        return now.number >= before.number and now.leader != ""

    stage.disturb(
        f"of {before.number} workers of the mirror the leading one {how}",
        hurt, lambda: bring_back(before.leader), world.wish.away_s, whole, victim="mirror",
    )  # fmt: skip
    stage.takeovers.append(Takeover(how=how, workers=before.number, another_led_s=led_s))
