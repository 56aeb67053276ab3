"""Trial `load`: a daily load curve, compressed in time, over two topics; then a burst.

The topics share the load 7 to 3, like the largest event types of one published system. The cost of
an event is measured during the burst. Under a lower load, librdkafka's threads wait actively, and
the CPU time for waiting grows as the load falls.
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
    """Return a periodic load curve that rises from a low rate to the peak and falls back.

    Args:
        peak: Peak rate, in events per second. The low rate is a fifth of it.
        seconds: Length of one period, in seconds.

    Returns:
        The rate in events per second as a function of the seconds since the start.
    """
    middle, swing = (1 + NIGHT) / 2, (1 - NIGHT) / 2
    return lambda now_s: peak * (middle - swing * math.cos(2 * math.pi * now_s / seconds))


def daily_curve_then_burst(peak: float, seconds: float) -> Rate:
    """Return a load curve that rises and falls once, followed by a rate that no client can reach.

    Args:
        peak: Peak rate of the rise, in events per second.
        seconds: Duration of rise and fall, in seconds. The burst starts afterwards.

    Returns:
        The rate in events per second as a function of the seconds since the start.
    """
    curve = daily_curve(peak, seconds)
    return lambda now_s: curve(now_s) if now_s < seconds else BURST


def run_trial(environment: TrialEnvironment, name: str, title: str) -> TrialResult:
    """Run the trial without faults: a daily load curve, then a burst at the client's maximum rate.

    The CPU time per event is measured during the burst. Without the option `burst`, the trial ends
    after the curve and measures no CPU time.

    Args:
        environment: The clusters and the user's options.
        name: Name of the trial.
        title: Title for the report.

    Returns:
        The measurements of the trial.

    Raises:
        RecoveryFailed: The sent records cannot be read back.
        Unavailable: A cluster does not answer.
    """
    options = environment.options
    with start_trial_run(
        environment,
        name,
        title,
        daily_curve_then_burst(options.rate, options.seconds),
        shares=SHARES,
    ) as trial:
        trial.wait_under_load(options.seconds)
        if not options.burst:
            trial.notes.append(
                "the CPU time per event was not measured, because there was no burst (--burst)"
            )
            return trial.finish()
        trial.report_progress(
            f"the daily curve ended after {trial.load.sent:,} records; now at the maximum rate"
        )
        trial.start_cpu_measurement()
        trial.wait_under_load(options.outage_s)
        return trial.finish()
