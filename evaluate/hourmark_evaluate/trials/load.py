"""Two topics at 7 to 3, as one system's largest types were, while a day passes in the time of the
load; then a burst.

What an event costs is taken from the burst: under a paced load, librdkafka's threads wait busily,
the more so the less there is to do.
"""

from __future__ import annotations

import math

from hourmark_evaluate.load import Rate
from hourmark_evaluate.results import Trial
from hourmark_evaluate.stage import on_stage
from hourmark_evaluate.world import World

SHARES = (7, 3)
NIGHT = 0.2  # of the peak
BURST = 1e6  # events a second


def day(peak: float, seconds: float) -> Rate:
    """From night to the peak and back, once in so many seconds."""
    middle, swing = (1 + NIGHT) / 2, (1 - NIGHT) / 2
    return lambda now_s: peak * (middle - swing * math.cos(2 * math.pi * now_s / seconds))


def day_and_burst(peak: float, seconds: float) -> Rate:
    """The burst is what the client can do, up to a rate that it cannot reach."""
    by_day = day(peak, seconds)
    return lambda now_s: by_day(now_s) if now_s < seconds else BURST


def play(world: World, name: str, title: str) -> Trial:
    """Nothing is disturbed: what it costs, and whether the brokers count the same."""
    wish = world.wish
    with on_stage(
        world, name, title, day_and_burst(wish.rate, wish.seconds), shares=SHARES
    ) as stage:
        stage.pause(wish.seconds)
        if not wish.burst:
            stage.notes.append("no burst, so what an event costs was not measured (--burst)")
            return stage.conclude()
        stage.say(f"a day has passed with {stage.load.sent:,} records; now as fast as it goes")
        stage.meter()
        stage.pause(wish.away_s)
        return stage.conclude()
