"""A mirror's leading worker is taken away until another leads, and comes back.

Killed, it comes back as a new one; paused, as one that still believes that it leads.
"""

from __future__ import annotations

from typing import Final

from hourmark.kafka.mirror import NO_LEADER, MirrorWorkers
from hourmark_evaluate.hands import Hands, OnWorker, flag, missing
from hourmark_evaluate.results import Takeover
from hourmark_evaluate.stage import Stage
from hourmark_evaluate.trials import copying

TAKEN_OVER_S: Final = 90.0  # the session of who is gone (10 s), and an election on a busy machine
_PAIRS: Final = {
    "killed": ("stop_worker", "start_worker"),
    "paused": ("pause_worker", "resume_worker"),
}


def why_not(there: MirrorWorkers, hands: Hands, how: str) -> str:
    """What hinders it."""
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
    return missing(hands, *_PAIRS[how])


def play(stage: Stage) -> None:
    """Each once; notes say what was not tried, and why."""
    for how, pair in _PAIRS.items():
        hands, there = stage.world.hands, copying.workers(stage.world)
        reason = why_not(there, hands, how)
        if not reason:
            take, bring_back = (getattr(hands, hand) for hand in pair)
            if not _without_leader(stage, there, how, take, bring_back):
                reason = (
                    f"{TAKEN_OVER_S:.0f} s after {flag(pair[0])} the same worker led: it was "
                    "not taken away"
                )
        if reason:
            stage.notes.append(f"the mirror's leading worker {how} was not tried: {reason}")


def _without_leader(
    stage: Stage, before: MirrorWorkers, how: str, take: OnWorker, bring_back: OnWorker
) -> bool:
    """Whether it was away, or why not is told: another led, or nobody."""
    world = stage.world
    led_s: float | None = None
    last = before.leader

    def another_leads() -> bool:
        nonlocal last
        last = copying.workers(world).leader
        return last not in (NO_LEADER, before.leader)

    def hurt() -> None:
        nonlocal led_s
        take(before.leader.address)
        began_s = world.clock.monotonic_s()
        if world.wait(another_leads, TAKEN_OVER_S, stage.look):
            led_s = round(world.clock.monotonic_s() - began_s, 1)

    def whole() -> bool:
        now = copying.workers(world)
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
        stage.takeovers.append(Takeover(how=how, workers=len(before.hosts), another_led_s=led_s))
    return was_away or not tried
