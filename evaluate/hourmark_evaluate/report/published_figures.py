"""Figures published by others next to the results of a run, with what each can and cannot show.

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
    """A figure published elsewhere, next to the corresponding result of a run.

    Attributes:
        what: What is compared.
        theirs: The published figure.
        source: Where it was published, as Markdown.
        here: Function that returns the corresponding result of a run as text.
        says: What the published figure shows, and what it does not show.
        ours: What the result of the run shows, and what it does not show.
    """

    what: str
    theirs: str
    source: str
    here: Callable[[Evaluation], str]
    says: str
    ours: str


def _trial(evaluation: Evaluation, name: str) -> TrialResult | None:
    return next((trial for trial in evaluation.trials if trial.name == name and trial.tried), None)


def _of_burst(evaluation: Evaluation, words: Callable[[CpuUsage], str]) -> str:
    trial = _trial(evaluation, "load")
    return NOT_HERE if trial is None or trial.cost is None else words(trial.cost)


def _rate(evaluation: Evaluation) -> str:
    where = f"by one client on a machine of {evaluation.cores} cores, acks of all in-sync replicas"
    return _of_burst(
        evaluation,
        lambda cost: (
            f"{cost.events / cost.seconds:,.0f} events/s of {evaluation.event_bytes} bytes {where}"
        ),
    )


def _per_core(evaluation: Evaluation) -> str:
    return _of_burst(
        evaluation,
        lambda cost: f"{cost.events_per_client_core:,.0f} events for a second of the client's CPU",
    )


def _per_event(evaluation: Evaluation) -> str:
    return _of_burst(
        evaluation,
        lambda cost: f"{cost.client_cpu_s / cost.events * 1e6:.1f} µs of CPU an event, all threads",
    )


def _backlog(evaluation: Evaluation) -> str:
    trial = _trial(evaluation, "backlog")
    if trial is None or trial.backlog is None:
        return NOT_HERE
    found = trial.backlog
    if found.caught_up_s is None:
        return f"{format_seconds(found.piled_s)} of load were not caught up"
    ratio = found.caught_up_s / found.piled_s
    return (
        f"{format_seconds(found.piled_s)} of load caught up in {format_seconds(found.caught_up_s)}, "
        f"{ratio:.2f} times as long"
    )


def _completeness(evaluation: Evaluation) -> str:
    counts = [counts for trial in evaluation.trials for counts in trial.counts]
    if not counts:
        return NOT_HERE
    lost, acknowledged = sum(c.lost for c in counts), sum(c.acknowledged for c in counts)
    return (
        f"{lost:,} lost of {acknowledged:,} that were acknowledged, counted at each place "
        "where they were read"
    )


def _claims(evaluation: Evaluation) -> str:
    trial = _trial(evaluation, "mirror-refused")
    if trial is None or trial.claims is None:
        return NOT_HERE
    found = trial.claims
    asked = f"asked {found.samples:,} times, {found.waiting_max:,} records waiting at the worst"
    return f"{asked}: {found.false_records:,} claimed falsely"


def _recoveries(evaluation: Evaluation) -> str:
    found = [d for trial in evaluation.trials for d in trial.disturbances if d.victim == "producer"]
    if not found:
        return NOT_HERE
    stuck = sum(d.recovered_s is None for d in found)
    slowest = max((d.recovered_s for d in found if d.recovered_s is not None), default=None)
    how = f"the slowest was through {format_seconds(slowest)} after the servers were back"
    return f"{len(found)} disturbances, {stuck} after which a producer was stuck; {how}"


def _workers(evaluation: Evaluation) -> str:
    trial = _trial(evaluation, "leaders")
    if trial is None:
        return NOT_HERE
    if not trial.takeovers:
        return "; ".join(note for note in trial.notes if "worker" in note) or NOT_HERE
    seen = [*map(describe_takeover, trial.takeovers)]
    seen += [note for note in trial.notes if "leading worker" in note and "was not tried" in note]
    copies = [counts for counts in trial.counts if counts.place == "central"]
    there = ", ".join(
        f"{sum(getattr(c, which) for c in copies):,} {which}"
        for which in ("lost", "doubled", "phantom")
    )
    acknowledged = sum(c.acknowledged for c in copies)
    return f"{'; '.join(seen)}. Of {acknowledged:,} records on the central cluster {there}"


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
        "said “done” although the target had refused",
        _FOLLOWED,
        _claims,
        "what was seen with Kafka 0.8 and MirrorMaker 1; nothing of today's",
        "of this way to refuse, for this long; not of every way",
    ),
    PublishedFigure(
        "producers",
        "stuck after brokers came and went, until they were started anew",
        _FOLLOWED,
        _recoveries,
        "what was seen with the Java client of 0.8",
        "of librdkafka's client with the settings of the delivery service; other clients "
        "were not asked",
    ),
    PublishedFigure(
        "several mirror workers",
        "confused about who leads",
        _FOLLOWED,
        _workers,
        "what was seen with MirrorMaker 1 of then",
        "of one leader killed, and one paused until another led, on one machine; links that "
        "are cut are a test of the project's "
        "own. Nothing where there was one worker: it takes two to be confused",
    ),
    PublishedFigure(
        "peak of a fleet",
        "2,000,000 events/s on 29 machines, 69,000 each; two topics, 7 to 3",
        _FOLLOWED,
        _rate,
        "that a managed queue took it from that many machines; not what the queue itself needed",
        "the path to all replicas on one machine that is client and all brokers at once; "
        "nothing of a fleet",
    ),
    PublishedFigure(
        "brokers' limit",
        "2,024,032 records/s of 100 bytes from three clients, copies later; "
        "421,823 from "
        "one, copies first",
        _LINKEDIN,
        _rate,
        "what three brokers take on machines of their own, with six disks each",
        "what is left for brokers where the client has the same cores",
    ),
    PublishedFigure(
        "HTTP → Kafka, a core",
        "68,000 events/s: 150,000 events/s on 2.2 cores, v0.1.0",
        _RACCOON,
        _per_core,
        "a whole server, WebSocket and batches of events in it; not the size of an "
        "event, nor whether replicas had it",
        "a client alone that makes, numbers and checks each record in Python; the "
        "delivery service itself has its own bench",
    ),
    PublishedFigure(
        "CPU of a producer",
        "3.5 to 5.8 µs an event of 125 to 240 bytes, acks of all, idempotent, lz4",
        _OWN,
        _per_event,
        "the client without anything around it",
        "the same client with a number, a checksum and a callback for each record",
    ),
    PublishedFigure(
        "backlog",
        "an hour's caught up in eight hours, at 800,000 events/s",
        _FOLLOWED,
        _backlog,
        "a whole export to storage, with the rate of a fleet",
        "a bare consumer that reads and counts, and stores nothing",
    ),
    PublishedFigure(
        "delay, from a line to the queue at the centre",
        "about 20 s on average",
        _FOLLOWED,
        lambda _: NOT_HERE,
        "a whole path, with batches of seconds",
        "the tests of Hourmark's mirror measure its part",
    ),
    PublishedFigure(
        "completeness",
        "99.99 % of what was produced is available",
        _UBER,
        _completeness,
        "a goal, for a whole company's topics; not what was measured",
        "what was measured, of every single record, under these faults; nothing of others",
    ),
    PublishedFigure(
        "export, hours closed",
        "20,000 events/s on 4 to 24 workers; hours closed in 2 to 3 h, a quarter of that later",
        _FOLLOWED,
        lambda _: NOT_HERE,
        "that system's own export",
        "`hourmark bench etl` measures Hourmark's",
    ),
    PublishedFigure(
        "tailer, one thread",
        "546 MB/s; 38 Vector, 36 Fluent Bit, 9 Filebeat",
        _LOONG,
        lambda _: NOT_HERE,
        "one vendor's rig, single lines to a sink that it does not name there",
        "`hourmark bench tailer` measures Hourmark's",
    ),
    PublishedFigure(
        "exporters with a published, measured completeness",
        "none found",
        "-",
        _completeness,
        "that none was found, not that there is none",
        "see completeness",
    ),
)


def comparison_rows(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """Return one table row per published figure, next to the corresponding result of this run.

    Returns:
        Rows with what is compared, the published figure, its source, the result of this run ("not
        tried here" if there is none), what the published figure shows, and what this result shows.
    """
    return [
        (p.what, p.theirs, p.source, p.here(evaluation), p.says, p.ours) for p in PUBLISHED_FIGURES
    ]


HEAD: Final = ("what", "theirs", "from", "here", "theirs can say", "ours can say")
