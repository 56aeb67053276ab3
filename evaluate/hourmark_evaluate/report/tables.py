"""The rows of the report's tables as plain text, shared by HTML and Markdown. Pure functions."""

from __future__ import annotations

from typing import Final

from hourmark_evaluate.results import (
    CpuUsage,
    Evaluation,
    LeaderTakeover,
    MetricComparison,
    MirrorPositionResult,
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
_RECORDS: Final = "acknowledged records, counted at each place"
_OBSERVATIONS: Final = {
    KafkaProperty.RECOVERS: "faults",
    KafkaProperty.CATCHES_UP: "backlogs",
    KafkaProperty.NO_FALSE_CLAIM: "samples of its positions",
    KafkaProperty.ANOTHER_LEADS: "leading workers removed",
    KafkaProperty.METRICS_AGREE: "comparisons",
}
PROPERTIES: Final = ("property", "verdict", "trials", "observations")
TRIALS: Final = (
    "trial",
    "verdict",
    "acknowledged",
    "lost",
    "doubled",
    "phantom",
    "faults",
    "longest wait",
    "recovered after",
)
DISTURBANCES: Final = ("trial", "fault", "duration", "longest wait", "recovered after")
COSTS: Final = (
    "trial",
    "events",
    "events/s",
    "events per second of client CPU",
    "client CPU",
    "broker CPU",
)


def format_seconds(value: float | None) -> str:
    """Format a duration in seconds with one decimal, such as "1.5 s".

    Args:
        value: Duration in seconds; None is formatted as "never".
    """
    return "never" if value is None else f"{value:,.1f} s"


def describe_setting(evaluation: Evaluation) -> str:
    """Describe the conditions of a run for the report: clusters, load and client machine.

    Returns:
        One paragraph of plain text.
    """
    e = evaluation
    where = f"on {e.where}" if e.where.startswith("the ") else f"on the {e.where}"
    central = f", {e.central_brokers} central brokers" if e.central_brokers else ""
    return (
        f"The evaluation ran {where}, with {e.edge_brokers} edge brokers{central} and a replication "
        f"factor of {e.replication}. Events had {e.event_bytes} bytes, and the peak rate was "
        f"{e.peak_rate:,} events per second. The client's machine had {e.cores} cores, with a load "
        f"average of {e.load_average[0]:.1f} before the run and {e.load_average[1]:.1f} in its last "
        f"minute. The run started at {e.began}, took {e.seconds / 60:.0f} minutes and used Hourmark "
        f"{e.version}."
    )


def property_rows(evaluation: Evaluation) -> list[Row]:
    """Return one table row per property, in the order of `KafkaProperty`.

    Returns:
        Rows with these cells: the property; its verdict; the number of trials that observed it; the
        number of observations ("-" if there are none), followed by any faults.
    """
    return [_property_row(one) for one in property_verdicts(evaluation)]


def trial_rows(evaluation: Evaluation) -> list[Row]:
    """Return one table row per trial.

    Returns:
        Rows with title, verdict, number of acknowledged, lost, duplicated and phantom records,
        number of faults, longest wait and slowest recovery. A phantom record was never sent, was
        altered, or is in the wrong partition. All figures are "-" if the trial was not tried or was
        aborted.
    """
    return [_trial_row(trial) for trial in evaluation.trials]


def disturbance_rows(evaluation: Evaluation) -> list[Row]:
    """Return one table row per injected fault of all trials.

    Returns:
        Rows with the trial's name, the description of the fault, its duration, the longest time
        that a record waited, and the time to recover ("never" if the time limit was exceeded).
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
        Rows with these cells: name of the trial; events; events per second; events per second of
        the client's CPU time; CPU time per event of the client and of the brokers.
    """
    return [
        _cost_row(trial.name, trial.cost) for trial in evaluation.trials if trial.cost is not None
    ]


def remarks(evaluation: Evaluation) -> list[str]:
    """Return the remarks of the report, each a sentence that starts with the name of its trial.

    A remark states the reason if a trial was not tried, was aborted, or was not compared with the
    brokers' metrics.

    Args:
        evaluation: The result of a completed or interrupted run.

    Returns:
        Sentences in the order of the trials; empty if there are no trials.
    """
    lines = []
    for trial in evaluation.trials:
        if trial.not_tried:
            lines.append(f"{trial.name}: not tried; {trial.not_tried}")
            continue
        if trial.broken_off:
            lines.append(f"{trial.name}: aborted; {trial.broken_off}")
            continue
        lines += [f"{trial.name}: {note}" for note in trial.notes]
        lines += [f"{trial.name}: {describe_takeover(takeover)}" for takeover in trial.takeovers]
        if (backlog := trial.backlog) is not None:
            lines.append(
                f"{trial.name}: {backlog.records:,} records accumulated in "
                f"{format_seconds(backlog.piled_s)}; under load, the consumer caught up in "
                f"{format_seconds(backlog.caught_up_s)}, at {backlog.read_per_s:,.0f} records per "
                "second"
            )
        if (claims := trial.claims) is not None:
            lines.append(
                f"{trial.name}: the mirror's positions were sampled {claims.samples:,} times; at "
                f"most {claims.waiting_max:,} records waited to be copied, {_early(claims)}and "
                f"{claims.false_records:,} were committed as copied but missing on the target"
            )
        lines.append(f"{trial.name}: {trial.not_compared or _compared(trial.comparisons)}")
    return lines


def _early(claims: MirrorPositionResult) -> str:
    if claims.early_max is None:
        return ""
    before = f" up to {format_seconds(claims.early_s)}" if claims.early_max else ""
    return f"{claims.early_max:,} were committed{before} before readers received them, "


def describe_takeover(takeover: LeaderTakeover) -> str:
    """Describe for the report whether a worker replaced the leading worker of MirrorMaker 2.

    Args:
        takeover: Outcome of the removal of the leading worker.

    Returns:
        Text that states how the worker was removed, and when, if ever, another worker took over.
    """
    led_s = takeover.another_led_s
    outcome = (
        "no other worker led in time"
        if led_s is None
        else f"another one led after {format_seconds(led_s)}"
    )
    return f"the leading one of {takeover.workers} workers was {takeover.how}: {outcome}"


def _compared(comparisons: tuple[MetricComparison, ...]) -> str:
    counts = (f"{c.what} {c.brokers:,} of {c.ours:,}" for c in comparisons)
    return f"brokers' metrics (JMX) compared with this evaluation's counts: {'; '.join(counts)}"


def _property_row(one: PropertyVerdict) -> Row:
    observed = (
        f"{_OBSERVATIONS.get(one.property, _RECORDS)}: {one.observations:,}"
        if one.trials
        else NOTHING
    )
    return str(one.property), str(one.verdict), str(one.trials), "; ".join((observed, *one.faults))


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
        "unknown"
        if cost.broker_cpu_s is None
        else f"{cost.broker_cpu_s / max(cost.events, 1) * 1e6:.1f} µs per event"
    )
    return (
        name,
        f"{cost.events:,}",
        f"{cost.events / max(cost.seconds, 1e-9):,.0f}",
        f"{cost.events_per_client_core:,.0f}",
        f"{cost.client_cpu_s / max(cost.events, 1) * 1e6:.1f} µs per event",
        of_brokers,
    )
