"""The mirror's leading worker is removed until another one leads, and then returns.

If it was killed, it returns as a new worker. If it was paused, it still assumes that it leads.
"""

from __future__ import annotations

from typing import Final

from hourmark.kafka.mirror import NO_LEADER, MirrorWorkers
from hourmark_evaluate.hands import Hands, OnWorker, flag, missing
from hourmark_evaluate.results import Takeover
from hourmark_evaluate.stage import Stage
from hourmark_evaluate.trials import copying

TAKEN_OVER_S: Final = 90.0  # the removed worker's session (10 s) and an election on a busy machine
_PAIRS: Final = {
    "killed": ("stop_worker", "start_worker"),
    "paused": ("pause_worker", "resume_worker"),
}


def why_not(there: MirrorWorkers, hands: Hands, how: str) -> str:
    """Return why the leading worker of a mirror cannot be removed, as a reason for the report.

    Args:
        there: The mirror's current workers.
        hands: The available operations on servers.
        how: "killed" or "paused".

    Returns:
        The reason; "" if it is possible.
    """
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
    """Kill the mirror's leading worker and then pause the next leader, within a running trial.

    The outcomes are added to `stage.takeovers`. If one of the two is not possible, the reason is
    added to `stage.notes`.

    Args:
        stage: The running trial; its topics must be mirrored.

    Raises:
        NotBack: The mirror's workers did not recover.
    """
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
    """Remove the leading worker until another one leads, and restore it.

    Returns:
        False if the same worker was still leading, so it was not removed; otherwise True, also if
        the disturbance failed and was recorded as not tried.
    """
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
