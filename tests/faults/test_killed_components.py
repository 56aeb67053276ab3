"""Tailer, service and Spark driver are each killed at random moments of a run, and started again;
the judge must be content.

One run kills all three several times: the demo's own story, with other trouble in its middle, on a
stack of its own (a killed tailer says no goodbye, and on a shared stack later buckets would wait
for it). A failure names its seed; `HOURMARK_CHAOS_SEED=<seed>` repeats the moments.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark_infra.jars.cache import print_progress
from hourmark_infra.stack import LocalStack
from hourmark_verify.demo.demo import Demo, DemoOptions
from hourmark_verify.demo.traffic import Traffic

pytestmark = [
    pytest.mark.stack,
    pytest.mark.chaos,
    pytest.mark.long,
    pytest.mark.timeout(900),
]  # each run has chaos trials

VICTIMS = {
    "tailer": 4,
    "service": 4,
    "etl": 2,
}  # how often each is killed; Spark needs its time to come back
AWAY_SECONDS_MAX = 3.0
MOMENTS = (0.1, 1.0)  # of the traffic's span


def kills(seed: int) -> list[tuple[float, str, float]]:
    """When, who, and for how many seconds it stays away; in the order of time."""
    chance = random.Random(seed)
    victims = [name for name, times in VICTIMS.items() for _ in range(times)]
    return sorted(
        (chance.uniform(*MOMENTS), name, chance.uniform(0, AWAY_SECONDS_MAX)) for name in victims
    )


class Killing:
    """The trouble of this run."""

    def __init__(self, seed: int) -> None:
        self.kills = kills(seed)

    def __call__(self, demo: Demo, traffic: Traffic, stack: LocalStack, config: Config) -> None:
        for moment, victim, away_s in self.kills:
            demo.wait_until(
                lambda moment=moment: traffic.moment >= moment,  # type: ignore[misc]
                "the next kill",
                traffic.span_s,
            )
            demo.report_progress(f"SIGKILL for the {victim}, {traffic.written:,} lines written")
            demo.components.kill(victim)
            demo.pause(away_s)
            demo.components.start(victim)
        # Once more, when buckets are being closed: the driver may be at any step of it.
        demo.wait_until(lambda: traffic.done, "the last line", 600)
        demo.pause(random.Random(moment).uniform(0, 20))
        demo.report_progress("SIGKILL for the etl while it closes")
        demo.components.kill("etl")
        demo.components.start("etl")


def test_moments_come_from_the_seed() -> None:
    assert kills(7) == kills(7) != kills(8)
    assert len(kills(7)) == sum(VICTIMS.values())


def test_the_judge_is_content_after_each_component_was_killed_at_random_moments(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("HOURMARK_CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
    print_progress(f"chaos seed {seed}")
    demo = Demo(
        tmp_path / "home",
        DemoOptions(rate=100, seed=seed, buckets=2),
        SystemClock(),
        print_progress,
        Killing(seed),
    )
    result = demo.run()
    assert result.faults == [], f"HOURMARK_CHAOS_SEED={seed}\n{result.report.as_text()}"
    for name, of in result.outcome["types"].items():
        assert of["grades"]["proved"] >= 2, f"HOURMARK_CHAOS_SEED={seed}: {name} {of}"
