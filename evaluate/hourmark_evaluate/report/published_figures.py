"""Figures published by others, compared with the results of a run. The limits of both are stated.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hourmark_evaluate.report.tables import describe_takeover, format_seconds
from hourmark_evaluate.results import CpuUsage, Evaluation, TrialResult

NOT_HERE: Final = "not tried here"


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """A published measurement or observation, to compare with the result of an evaluation run.

    Attributes:
        subject: What is compared.
        figure: The published value, or a description of the observation.
        source: Where it was published, as Markdown.
        describe_result: Function that returns the corresponding result of a run as text.
        figure_scope: What the published figure shows and does not show.
        result_scope: What the result of the run shows and does not show.
    """

    subject: str
    figure: str
    source: str
    describe_result: Callable[[Evaluation], str]
    figure_scope: str
    result_scope: str


def _find_trial(evaluation: Evaluation, name: str) -> TrialResult | None:
    return next((trial for trial in evaluation.trials if trial.name == name and trial.tried), None)


def _describe_burst(evaluation: Evaluation, describe: Callable[[CpuUsage], str]) -> str:
    trial = _find_trial(evaluation, "load")
    return NOT_HERE if trial is None or trial.cost is None else describe(trial.cost)


def _rate(evaluation: Evaluation) -> str:
    where = (
        f"from one client on a machine of {evaluation.cores} cores, acks of all in-sync replicas"
    )
    return _describe_burst(
        evaluation,
        lambda cost: (
            f"{cost.events / cost.seconds:,.0f} events/s of {evaluation.event_bytes} bytes {where}"
        ),
    )


def _events_per_core(evaluation: Evaluation) -> str:
    return _describe_burst(
        evaluation,
        lambda cost: f"{cost.events_per_client_core:,.0f} events per second of client CPU time",
    )


def _cpu_per_event(evaluation: Evaluation) -> str:
    return _describe_burst(
        evaluation,
        lambda cost: (
            f"{cost.client_cpu_s / cost.events * 1e6:.1f} µs of CPU per event, all threads"
        ),
    )


def _backlog(evaluation: Evaluation) -> str:
    trial = _find_trial(evaluation, "backlog")
    if trial is None or trial.backlog is None:
        return NOT_HERE
    backlog = trial.backlog
    if backlog.caught_up_s is None:
        return f"did not catch up with {format_seconds(backlog.piled_s)} of load"
    ratio = backlog.caught_up_s / backlog.piled_s
    return (
        f"caught up with {format_seconds(backlog.piled_s)} of load in "
        f"{format_seconds(backlog.caught_up_s)}, {ratio:.2f} times as long"
    )


def _completeness(evaluation: Evaluation) -> str:
    counts = [counts for trial in evaluation.trials for counts in trial.counts]
    if not counts:
        return NOT_HERE
    lost, acknowledged = sum(c.lost for c in counts), sum(c.acknowledged for c in counts)
    return f"{lost:,} of {acknowledged:,} acknowledged records lost, counted at each place"


def _claims(evaluation: Evaluation) -> str:
    trial = _find_trial(evaluation, "mirror-refused")
    if trial is None or trial.claims is None:
        return NOT_HERE
    claims = trial.claims
    return (
        f"{claims.false_records:,} records falsely reported as copied, in {claims.samples:,} "
        f"samples with up to {claims.waiting_max:,} records waiting"
    )


def _recoveries(evaluation: Evaluation) -> str:
    faults = [
        fault
        for trial in evaluation.trials
        for fault in trial.disturbances
        if fault.victim == "producer"
    ]
    if not faults:
        return NOT_HERE
    stuck = sum(fault.recovered_s is None for fault in faults)
    slowest = max((f.recovered_s for f in faults if f.recovered_s is not None), default=None)
    return (
        f"{len(faults)} faults, {stuck} after which a producer was stuck; the slowest recovery "
        f"took {format_seconds(slowest)} after that of the servers"
    )


def _workers(evaluation: Evaluation) -> str:
    trial = _find_trial(evaluation, "leaders")
    if trial is None:
        return NOT_HERE
    if not trial.takeovers:
        return "; ".join(note for note in trial.notes if "worker" in note) or NOT_HERE
    outcomes = [*map(describe_takeover, trial.takeovers)]
    outcomes += [
        note for note in trial.notes if "leading worker" in note and "was not tried" in note
    ]
    copies = [counts for counts in trial.counts if counts.place == "central"]
    totals = ", ".join(
        f"{sum(getattr(c, which) for c in copies):,} {which}"
        for which in ("lost", "doubled", "phantom")
    )
    acknowledged = sum(c.acknowledged for c in copies)
    return f"{'; '.join(outcomes)}. Of {acknowledged:,} records on the central cluster: {totals}"


_FOLLOWED: Final = (
    "[the system this one "
    "follows](https://engineering.atspotify.com/2016/03/spotifys-event-delivery-the-road-to-the-cloud-part-ii/)"
)
_RACCOON: Final = (
    "[Raccoon's benchmark page](https://raystack.github.io/raccoon/reference/benchmarks)"
)
_LOONG: Final = "[LoongCollector's README](https://github.com/alibaba/loongcollector)"
_LINKEDIN: Final = (
    "[LinkedIn, "
    "2014](https://engineering.linkedin.com/kafka/benchmarking-apache-kafka-2-million-writes-second-three-cheap-machines)"
)
_UBER: Final = "a talk of 2018; [how it is audited](https://eng.uber.com/chaperone/)"
_OWN: Final = "this project, on one small machine"

PUBLISHED_FIGURES: Final = (
    PublishedFigure(
        "mirror",
        "reported records as copied although the target had refused them",
        _FOLLOWED,
        _claims,
        "observed with Kafka 0.8 and MirrorMaker 1; nothing about current versions",
        "this kind of refusal, for this duration; no other kinds",
    ),
    PublishedFigure(
        "producers",
        "stuck after brokers stopped and started, until the producers were restarted",
        _FOLLOWED,
        _recoveries,
        "observed with the Java client of Kafka 0.8",
        "librdkafka with the settings of the delivery service; no other clients",
    ),
    PublishedFigure(
        "several mirror workers",
        "disagreed about their leader",
        _FOLLOWED,
        _workers,
        "observed with MirrorMaker 1 of that time",
        "one leader killed, and one paused until another led, on one machine; network partitions "
        "are tested separately. Shows nothing if there was only one worker",
    ),
    PublishedFigure(
        "peak of a fleet",
        "2,000,000 events/s on 29 machines, 69,000 each; two topics, 7 to 3",
        _FOLLOWED,
        _rate,
        "a managed queue accepted this load from that many machines; not what the queue needed",
        "the path to all replicas on one machine that is client and all brokers at once; "
        "nothing about a fleet",
    ),
    PublishedFigure(
        "limit of the brokers",
        "2,024,032 records/s of 100 bytes from three clients, asynchronous replication; "
        "421,823 from one, synchronous replication",
        _LINKEDIN,
        _rate,
        "what three brokers accept on machines of their own, with six disks each",
        "what brokers accept that share their cores with the client",
    ),
    PublishedFigure(
        "HTTP → Kafka, per core",
        "68,000 events/s: 150,000 events/s on 2.2 cores, v0.1.0",
        _RACCOON,
        _events_per_core,
        "a whole server, with WebSocket and batches of events; neither the size of an "
        "event nor whether replicas had it",
        "a client alone that creates, numbers and checks each record in Python; the "
        "delivery service has its own benchmark",
    ),
    PublishedFigure(
        "CPU time of a producer",
        "3.5 to 5.8 µs per event of 125 to 240 bytes, acks of all, idempotent, lz4",
        _OWN,
        _cpu_per_event,
        "the client without anything around it",
        "the same client with a number, a checksum and a callback for each record",
    ),
    PublishedFigure(
        "backlog",
        "caught up with an hour of load in eight hours, at 800,000 events/s",
        _FOLLOWED,
        _backlog,
        "a whole export to storage, at the rate of a fleet",
        "a consumer that reads and counts, and stores nothing",
    ),
    PublishedFigure(
        "delay, from a line to the central queue",
        "about 20 s on average",
        _FOLLOWED,
        lambda _: NOT_HERE,
        "a whole path, with batches of seconds",
        "the tests of Hourmark's mirror measure its part",
    ),
    PublishedFigure(
        "completeness",
        "99.99 % of the produced messages are available",
        _UBER,
        _completeness,
        "a goal for all topics of a company; not a measurement",
        "a measurement of each record, under these faults; nothing about others",
    ),
    PublishedFigure(
        "export, hours closed",
        "20,000 events/s on 4 to 24 workers; hours closed in 2 to 3 h, later in a "
        "quarter of that time",
        _FOLLOWED,
        lambda _: NOT_HERE,
        "the export of that system",
        "`hourmark bench etl` measures Hourmark's",
    ),
    PublishedFigure(
        "tailer, one thread",
        "546 MB/s; 38 Vector, 36 Fluent Bit, 9 Filebeat",
        _LOONG,
        lambda _: NOT_HERE,
        "one vendor's test setup, single lines to a sink that the page does not name",
        "`hourmark bench tailer` measures Hourmark's",
    ),
    PublishedFigure(
        "exporters with a published, measured completeness",
        "none found",
        "-",
        _completeness,
        "none was found; this does not prove that there is none",
        "see completeness",
    ),
)


def comparison_rows(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """Return one table row per published figure, with the corresponding result of a run.

    Args:
        evaluation: The result of a completed or interrupted run.

    Returns:
        Rows with these cells: what is compared; the published figure; its source; the result of
        this run ("not tried here" if there is none); what the published figure shows; what this
        result shows.
    """
    return [
        (
            figure.subject,
            figure.figure,
            figure.source,
            figure.describe_result(evaluation),
            figure.figure_scope,
            figure.result_scope,
        )
        for figure in PUBLISHED_FIGURES
    ]


HEAD: Final = ("subject", "published", "source", "here", "published figure shows", "result shows")
