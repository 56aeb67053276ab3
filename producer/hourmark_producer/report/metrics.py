"""All metrics of the tailer, in one place: names, kinds, meanings; and Prometheus' text format of
them. docs/metrics.md explains.

Nothing is counted here: what other modules count is written down when it is asked for. Labels are
sources and services of the configuration, and reasons of dead letters: never files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from hourmark_producer.checkpoint.books import SourceBalance
from hourmark_producer.counters import Losses
from hourmark_producer.send.services import ServiceStanding

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "hourmark_tailer_"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[Mapping[str, str], float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """One moment of a tailer. By source where it is a mapping; times are Unix seconds, 0 for
    never.
    """

    balances: Mapping[str, SourceBalance]
    losses: Mapping[str, Losses]
    files: Mapping[str, int]
    lag_seconds: Mapping[str, float]
    dead_letters: Mapping[str, Mapping[str, int]]
    services: Sequence[ServiceStanding]
    ranges: int
    events: int
    conditions: int
    well: bool
    started_at_s: float
    delivered_at_s: float
    reported_at_s: float
    reload_ok: bool = True


def exposition(numbers: Numbers) -> bytes:
    """Prometheus' text format, version 0.0.4."""
    return "".join(_lines(numbers)).encode()


def canary_exposition(acknowledged_at_s: float) -> bytes:
    """Of a canary, in the same format."""
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


def _lines(numbers: Numbers) -> Iterator[str]:
    def books(name: str) -> list[Sample]:
        return [
            ({"source": source}, getattr(balance, name))
            for source, balance in numbers.balances.items()
        ]

    def by_source(values: Mapping[str, float]) -> list[Sample]:
        return [({"source": source}, value) for source, value in values.items()]

    yield from _metric("bytes_seen_total", "counter", "Bytes seen in files.", books("seen"))
    yield from _metric(
        "bytes_acknowledged_total",
        "counter",
        "Of these: acknowledged by a service.",
        books("acknowledged"),
    )
    yield from _metric(
        "bytes_in_flight",
        "gauge",
        "Of these: in ranges that are not acknowledged yet.",
        books("in_flight"),
    )
    yield from _metric("bytes_pending", "gauge", "Of these: in no range yet.", books("pending"))
    yield from _metric(
        "bytes_skipped_total", "counter", "Of these: passed over, not lost.", books("skipped")
    )
    yield from _metric(
        "bytes_lost_total", "counter", "Of these: destroyed before they were read.", books("lost")
    )
    yield from _metric(
        "books_off_by_bytes",
        "gauge",
        "Of these: nowhere. Other than 0 is a fault.",
        books("off_by"),
    )
    unknown = {source: float(losses.unknown) for source, losses in numbers.losses.items()}
    yield from _metric(
        "unknown_losses_total",
        "counter",
        "Occasions of loss that nobody can measure.",
        by_source(unknown),
    )
    yield from _metric("files", "gauge", "Files that are followed.", by_source(numbers.files))
    yield from _metric(
        "lag_seconds",
        "gauge",
        "Since when all that was there is acknowledged.",
        by_source(numbers.lag_seconds),
    )
    dead = [
        ({"source": source, "reason": reason}, float(count))
        for source, reasons in numbers.dead_letters.items()
        for reason, count in reasons.items()
    ]
    yield from _metric(
        "dead_letters_total", "counter", "Lines that became dead letters, since the start.", dead
    )
    up = [
        ({"service": one.service}, float(one.failing_seconds is None)) for one in numbers.services
    ]
    yield from _metric(
        "service_up", "gauge", "Whether the latest request to a delivery service was taken.", up
    )
    taken = [({"service": one.service}, float(one.ranges)) for one in numbers.services]
    yield from _metric(
        "service_ranges_total",
        "counter",
        "Ranges that a service acknowledged, since the start.",
        taken,
    )
    for name, kind, meaning, value in (
        ("ranges_total", "counter", "Ranges acknowledged, since the start.", numbers.ranges),
        ("events_total", "counter", "Events that came of them.", numbers.events),
        (
            "conditions",
            "gauge",
            "What is not as it should be, as the log says.",
            numbers.conditions,
        ),
        ("well", "gauge", "1 where /healthz answers 200.", int(numbers.well)),
        ("start_timestamp_seconds", "gauge", "Unix time of the start.", numbers.started_at_s),
        (
            "last_delivery_timestamp_seconds",
            "gauge",
            "Unix time of the last acknowledged range.",
            numbers.delivered_at_s,
        ),
        (
            "last_report_timestamp_seconds",
            "gauge",
            "Unix time of the last host report that arrived.",
            numbers.reported_at_s,
        ),
        (
            "config_last_reload_successful",
            "gauge",
            "0 where SIGHUP found a configuration out of order.",
            int(numbers.reload_ok),
        ),
    ):
        yield from _metric(name, kind, meaning, [({}, value)])


def _metric(
    name: str, kind: str, meaning: str, samples: Iterable[Sample], prefix: str = _PREFIX
) -> Iterator[str]:
    yield f"# HELP {prefix}{name} {meaning}\n# TYPE {prefix}{name} {kind}\n"
    for labels, value in samples:
        told = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
        yield f"{prefix}{name}{{{told}}} {value}\n" if told else f"{prefix}{name} {value}\n"
