"""A mirror's leading worker is taken away until another leads, and comes back.

Killed, it comes back as a new one; paused, as one that still believes that it leads.
"""

from __future__ import annotations

from typing import Final

from hourmark_infra.evaluate.hands import OnWorker, missing
from hourmark_infra.evaluate.results import Takeover
from hourmark_infra.evaluate.stage import Stage
from hourmark_infra.evaluate.trials import copying

TAKEN_OVER_S: Final = 90.0  # the session of who is gone (10 s), and an election on a busy machine


def play(stage: Stage) -> None:
    """Killed, then paused; notes say what was not tried, and why."""
    if not (there := copying.workers(stage.world)).leader:
        stage.notes.append("a leading worker of the mirror was not tried: who leads could not be told")
        return
    if there.number < 2:
        stage.notes.append("a leading worker of the mirror was not tried: it takes two to be confused about who leads")
        return
    hands = stage.world.hands
    _without_leader(stage, "killed", ("stop_worker", "start_worker"), hands.stop_worker, hands.start_worker)
    _without_leader(stage, "paused", ("pause_worker", "resume_worker"), hands.pause_worker, hands.resume_worker)


def _without_leader(stage: Stage, how: str, names: tuple[str, str], take: OnWorker | None, bring_back: OnWorker | None) -> None:
    world = stage.world
    if reason := missing(world.hands, *names):
        stage.notes.append(f"a leading worker of the mirror {how} was not tried: {reason}")
        return
    assert take and bring_back, "nothing is missing"
    before = copying.workers(world)
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
