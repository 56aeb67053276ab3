"""All metrics of the tailer with their types and meanings, in the Prometheus text format.

The values are counted elsewhere and only formatted here. Labels are configured sources and
services, and reasons of dead letters, but never files. docs/reference/metrics.md documents the metrics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from hourmark_producer.checkpoint.books import SourceBalance
from hourmark_producer.counters import Losses
from hourmark_producer.send.services import ServiceStatus

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "hourmark_tailer_"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[Mapping[str, str], float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TailerMetrics:
    """The values of all metrics of a tailer at one moment.

    Times are in Unix seconds; 0 means never.

    Attributes:
        balances: Byte counts by source.
        losses: Losses by source.
        files: Number of tracked files by source.
        lag_seconds: Seconds since all data of a source was last acknowledged, by source.
        dead_letters: Number of lines since the start that services could not parse, by source and
            reason.
        services: State of each delivery service.
        ranges: Number of acknowledged ranges since the start.
        events: Number of events in these ranges.
        conditions: Number of ongoing conditions (problems that last for some time).
        is_healthy: Whether /healthz returns status 200.
        started_at_s: When the process started.
        delivered_at_s: When a range was last acknowledged.
        reported_at_s: When a host report was last delivered.
        reload_ok: Whether the latest reload found a valid configuration; True if there was none.
    """

    balances: Mapping[str, SourceBalance]
    losses: Mapping[str, Losses]
    files: Mapping[str, int]
    lag_seconds: Mapping[str, float]
    dead_letters: Mapping[str, Mapping[str, int]]
    services: Sequence[ServiceStatus]
    ranges: int
    events: int
    conditions: int
    is_healthy: bool
    started_at_s: float
    delivered_at_s: float
    reported_at_s: float
    reload_ok: bool = True


def render_tailer_metrics(metrics: TailerMetrics) -> bytes:
    """Render the metrics of a tailer for the endpoint `/metrics`.

    Args:
        metrics: Current values of all metrics.

    Returns:
        The metrics in the Prometheus text format, version 0.0.4, encoded in UTF-8.
    """
    return "".join(_lines(metrics)).encode()


def render_canary_metrics(acknowledged_at_s: float) -> bytes:
    """Render the metrics of a canary poster, which sends test events at regular intervals.

    Args:
        acknowledged_at_s: When a canary event was last acknowledged, in Unix seconds; 0 for never.

    Returns:
        The metrics in the Prometheus text format, version 0.0.4.
    """
    said = "Unix time of the last canary that a delivery service acknowledged, 0 for never."
    return "".join(
        _metric(
            "acknowledged_timestamp_seconds",
            "gauge",
            said,
            [({}, acknowledged_at_s)],
            "hourmark_canary_",
        )
    ).encode()


def _lines(metrics: TailerMetrics) -> Iterator[str]:
    def books(name: str) -> list[Sample]:
        return [
            ({"source": source}, getattr(balance, name))
            for source, balance in metrics.balances.items()
        ]

    def by_source(values: Mapping[str, float]) -> list[Sample]:
        return [({"source": source}, value) for source, value in values.items()]

    yield from _metric("bytes_seen_total", "counter", "Bytes found in files.", books("seen"))
    yield from _metric(
        "bytes_acknowledged_total",
        "counter",
        "Bytes of these that a service acknowledged.",
        books("acknowledged"),
    )
    yield from _metric(
        "bytes_in_flight",
        "gauge",
        "Bytes of these in ranges that are not acknowledged yet.",
        books("in_flight"),
    )
    yield from _metric(
        "bytes_pending", "gauge", "Bytes of these that are not in a range yet.", books("pending")
    )
    yield from _metric(
        "bytes_skipped_total",
        "counter",
        "Bytes of these that were skipped intentionally, not lost.",
        books("skipped"),
    )
    yield from _metric(
        "bytes_lost_total",
        "counter",
        "Bytes of these that were destroyed before they were read.",
        books("lost"),
    )
    yield from _metric(
        "books_off_by_bytes",
        "gauge",
        "Bytes of these that are unaccounted for. A value other than 0 is a bug.",
        books("off_by"),
    )
    unknown = {source: float(losses.unknown) for source, losses in metrics.losses.items()}
    yield from _metric(
        "unknown_losses_total",
        "counter",
        "Occasions on which an unknown amount was lost.",
        by_source(unknown),
    )
    yield from _metric("files", "gauge", "Tracked files.", by_source(metrics.files))
    yield from _metric(
        "lag_seconds",
        "gauge",
        "Seconds since all data was last acknowledged.",
        by_source(metrics.lag_seconds),
    )
    dead = [
        ({"source": source, "reason": reason}, float(count))
        for source, reasons in metrics.dead_letters.items()
        for reason, count in reasons.items()
    ]
    yield from _metric(
        "dead_letters_total", "counter", "Lines that became dead letters since the start.", dead
    )
    up = [
        ({"service": one.service}, float(one.failing_seconds is None)) for one in metrics.services
    ]
    yield from _metric(
        "service_up", "gauge", "Whether the latest request to a delivery service succeeded.", up
    )
    taken = [({"service": one.service}, float(one.ranges)) for one in metrics.services]
    yield from _metric(
        "service_ranges_total",
        "counter",
        "Ranges that a service acknowledged since the start.",
        taken,
    )
    for name, kind, meaning, value in (
        ("ranges_total", "counter", "Ranges acknowledged since the start.", metrics.ranges),
        (
            "events_total",
            "counter",
            "Events in acknowledged ranges since the start.",
            metrics.events,
        ),
        (
            "conditions",
            "gauge",
            "Ongoing conditions in the log.",
            metrics.conditions,
        ),
        (
            "well",
            "gauge",
            "1 if /healthz responds with status 200, else 0.",
            int(metrics.is_healthy),
        ),
        ("start_timestamp_seconds", "gauge", "Unix time of the start.", metrics.started_at_s),
        (
            "last_delivery_timestamp_seconds",
            "gauge",
            "Unix time of the last acknowledged range.",
            metrics.delivered_at_s,
        ),
        (
            "last_report_timestamp_seconds",
            "gauge",
            "Unix time of the last delivered host report.",
            metrics.reported_at_s,
        ),
        (
            "config_last_reload_successful",
            "gauge",
            "0 if the latest SIGHUP found an invalid configuration, else 1.",
            int(metrics.reload_ok),
        ),
    ):
        yield from _metric(name, kind, meaning, [({}, value)])


def _metric(
    name: str, kind: str, meaning: str, samples: Iterable[Sample], prefix: str = _PREFIX
) -> Iterator[str]:
    yield f"# HELP {prefix}{name} {meaning}\n# TYPE {prefix}{name} {kind}\n"
    for labels, value in samples:
        formatted = ",".join(
            f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items()
        )
        yield (
            f"{prefix}{name}{{{formatted}}} {value}\n" if formatted else f"{prefix}{name} {value}\n"
        )
