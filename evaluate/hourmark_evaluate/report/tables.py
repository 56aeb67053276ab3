"""The rows of the report's tables as plain text, shared by HTML and Markdown. Pure functions."""

from __future__ import annotations

from typing import Final

from hourmark_evaluate.results import (
    CpuUsage,
    Evaluation,
    LeaderTakeover,
    MetricComparison,
    PositionClaims,
    TrialResult,
)
from hourmark_evaluate.verdicts import (
    KafkaProperty,
    PropertyVerdict,
    property_verdicts,
    trial_verdict,
)

Row = tuple[str, ...]

NOTHING: Final = "-"
_RECORDS: Final = "acknowledged records, at each place"
_LOOKED: Final = {
    KafkaProperty.RECOVERS: "disturbances",
    KafkaProperty.CATCHES_UP: "backlogs",
    KafkaProperty.NO_FALSE_CLAIM: "times it was asked",
    KafkaProperty.ANOTHER_LEADS: "leading workers taken away",
    KafkaProperty.METRICS_AGREE: "comparisons",
}
PROPERTIES: Final = ("property", "verdict", "trials", "looked at")
TRIALS: Final = (
    "trial",
    "verdict",
    "acknowledged",
    "lost",
    "doubled",
    "phantom",
    "disturbances",
    "longest wait",
    "well again after",
)
DISTURBANCES: Final = ("trial", "what was done", "away", "longest wait", "well again after")
COSTS: Final = (
    "trial",
    "events",
    "a second",
    "for a second of the client's CPU",
    "client",
    "brokers",
)


def format_seconds(value: float | None) -> str:
    """Return a duration with one decimal and its unit, such as "1.5 s"; "never" for None."""
    return "never" if value is None else f"{value:,.1f} s"


def describe_setting(evaluation: Evaluation) -> str:
    """Return one paragraph that describes the clusters, the load and the machine of a run."""
    e = evaluation
    central = f", a central cluster of {e.central_brokers}" if e.central_brokers else ""
    return (
        f"Tried on {e.where}: {e.edge_brokers} edge brokers{central}, {e.replication} copies of "
        "each topic, events of "
        f"{e.event_bytes} bytes, {e.peak_rate:,} a second at the peak; the client's machine has "
        f"{e.cores} cores, with a load of "
        f"{e.load_average[0]:.1f} before it began and {e.load_average[1]:.1f} in its last "
        f"minute. Begun {e.began}, "
        f"took {e.seconds / 60:.0f} minutes, Hourmark {e.version}."
    )


def property_rows(evaluation: Evaluation) -> list[Row]:
    """Return one table row per property, in the order of `Property`.

    Returns:
        Rows with the property, its verdict, the number of trials that observed it, and the number
        of observations ("-" if there are none) followed by any faults.
    """
    return [_property_row(one) for one in property_verdicts(evaluation)]


def trial_rows(evaluation: Evaluation) -> list[Row]:
    """Return one table row per trial.

    Returns:
        Rows with title, verdict, number of acknowledged, lost, duplicated and phantom records,
        number of faults, longest wait and slowest recovery. "-" replaces all figures if the trial
        was not tried or was aborted.
    """
    return [_trial_row(trial) for trial in evaluation.trials]


def disturbance_rows(evaluation: Evaluation) -> list[Row]:
    """Return one table row per injected fault of all trials.

    Returns:
        Rows with the trial's name, the description of the fault, its duration, the longest wait of
        a record, and the time to recover ("never" if the time limit was exceeded).
    """
    return [
        (
            t.name,
            d.what,
            format_seconds(d.healed_s - d.began_s),
            format_seconds(d.longest_wait_s),
            format_seconds(d.recovered_s),
        )
        for t in evaluation.trials
        for d in t.disturbances
    ]


def cost_rows(evaluation: Evaluation) -> list[Row]:
    """Return one table row per trial whose CPU cost was measured.

    Returns:
        Rows with the trial's name, events, events per second, events per second of the client's CPU
        time, and CPU time per event of the client and of the brokers.
    """
    return [
        _cost_row(trial.name, trial.cost) for trial in evaluation.trials if trial.cost is not None
    ]


def remarks(evaluation: Evaluation) -> list[str]:
    """Return further observations, each one sentence that starts with the name of its trial.

    They include the reason if a trial was not tried, was aborted, or was not compared with the
    brokers' metrics.
    """
    found = []
    for trial in evaluation.trials:
        if trial.not_tried:
            found.append(f"{trial.name}: not tried; {trial.not_tried}")
            continue
        if trial.broken_off:
            found.append(f"{trial.name}: not brought to its end; {trial.broken_off}")
            continue
        found += [f"{trial.name}: {note}" for note in trial.notes]
        found += [f"{trial.name}: {describe_takeover(takeover)}" for takeover in trial.takeovers]
        if (backlog := trial.backlog) is not None:
            found.append(
                f"{trial.name}: {backlog.records:,} records had piled up in "
                f"{format_seconds(backlog.piled_s)}; they were caught up in "
                f"{format_seconds(backlog.caught_up_s)}, at {backlog.read_per_s:,.0f} a second, while "
                "the load went on"
            )
        if (claims := trial.claims) is not None:
            found.append(
                f"{trial.name}: the mirror was asked {claims.samples:,} times; at the worst "
                f"{claims.waiting_max:,} records "
                f"waited, {_early(claims)}and {claims.false_records:,} were claimed that the "
                "target did not hold"
            )
        found.append(f"{trial.name}: {trial.not_compared or _compared(trial.comparisons)}")
    return found


def _early(claims: PositionClaims) -> str:
    if claims.early_max is None:
        return ""
    before = f" up to {format_seconds(claims.early_s)}" if claims.early_max else ""
    return f"{claims.early_max:,} were claimed{before} before readers were given them, "


def describe_takeover(takeover: LeaderTakeover) -> str:
    """Return a sentence on whether another worker took over from a mirror's leader."""
    led_s = takeover.another_led_s
    then = (
        "nobody else led in time" if led_s is None else f"another led {format_seconds(led_s)} later"
    )
    return f"of {takeover.workers} workers the leading one was {takeover.how}: {then}"


def _compared(comparisons: tuple[MetricComparison, ...]) -> str:
    each = (f"{c.what} {c.brokers:,} of {c.ours:,}" for c in comparisons)
    return f"the brokers' own metrics (JMX) beside what was counted: {'; '.join(each)}"


def _property_row(one: PropertyVerdict) -> Row:
    looked = f"{_LOOKED.get(one.property, _RECORDS)}: {one.looked:,}" if one.trials else NOTHING
    return str(one.property), str(one.verdict), str(one.trials), "; ".join((looked, *one.faults))


def _trial_row(trial: TrialResult) -> Row:
    name = f"{trial.name}: {trial.title}"
    if not trial.tried or trial.broken_off:
        return name, str(trial_verdict(trial)), *(NOTHING,) * (len(TRIALS) - 2)
    waits = [d.longest_wait_s for d in trial.disturbances]
    recoveries = [d.recovered_s for d in trial.disturbances]
    slowest = (
        None if None in recoveries else max((r for r in recoveries if r is not None), default=0.0)
    )
    return (
        name,
        str(trial_verdict(trial)),
        f"{trial.counts[0].acknowledged:,}",
        *(
            f"{sum(getattr(counts, which) for counts in trial.counts):,}"
            for which in ("lost", "doubled", "phantom")
        ),
        str(len(trial.disturbances)),
        format_seconds(max(waits)) if waits else NOTHING,
        format_seconds(slowest) if waits else NOTHING,
    )


def _cost_row(name: str, cost: CpuUsage) -> Row:
    of_brokers = (
        "not known"
        if cost.broker_cpu_s is None
        else f"{cost.broker_cpu_s / max(cost.events, 1) * 1e6:.1f} µs an event"
    )
    return (
        name,
        f"{cost.events:,}",
        f"{cost.events / max(cost.seconds, 1e-9):,.0f}",
        f"{cost.events_per_client_core:,.0f}",
        f"{cost.client_cpu_s / max(cost.events, 1) * 1e6:.1f} µs an event",
        of_brokers,
    )
