"""A daily load curve, compressed in time, over two topics with shares of 7 to 3; then a burst.

The shares are those of the largest event types of one published system. The cost of an event is
measured in the burst: under a paced load, librdkafka's threads wait actively, and the more so the
lower the load is.
"""

from __future__ import annotations

import math

from hourmark_evaluate.clients.load_producer import Rate
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.execution.trial_run import start_trial_run
from hourmark_evaluate.results import TrialResult

SHARES = (7, 3)
NIGHT = 0.2  # fraction of the peak
BURST = 1e6  # events per second


def daily_curve(peak: float, seconds: float) -> Rate:
    """Return a rate that rises from the night rate to the peak and falls back, periodically.

    Args:
        peak: Peak rate, in events per second. The night rate is a fifth of it.
        seconds: Length of one period.

    Returns:
        The rate in events per second as a function of the seconds since the start.
    """
    middle, swing = (1 + NIGHT) / 2, (1 - NIGHT) / 2
    return lambda now_s: peak * (middle - swing * math.cos(2 * math.pi * now_s / seconds))


def daily_curve_then_burst(peak: float, seconds: float) -> Rate:
    """Return a rate that follows one daily curve and then exceeds what a client can send.

    Args:
        peak: Peak rate of the curve, in events per second.
        seconds: Length of the curve; the burst starts then.

    Returns:
        The rate in events per second as a function of the seconds since the start.
    """
    by_day = daily_curve(peak, seconds)
    return lambda now_s: by_day(now_s) if now_s < seconds else BURST


def run_trial(world: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial without faults: measure the cost of an event and compare the brokers' counts.

    Args:
        world: The clusters and the user's options.
        name: Name of the trial.
        title: Title for the report.

    Raises:
        NotBack: The sent records cannot be read back.
        Unavailable: A cluster does not answer.
    """
    wish = world.wish
    with start_trial_run(
        world, name, title, daily_curve_then_burst(wish.rate, wish.seconds), shares=SHARES
    ) as stage:
        stage.pause(wish.seconds)
        if not wish.burst:
            stage.notes.append("no burst, so what an event costs was not measured (--burst)")
            return stage.conclude()
        stage.say(f"a day has passed with {stage.load.sent:,} records; now as fast as it goes")
        stage.meter()
        stage.pause(wish.away_s)
        return stage.conclude()
