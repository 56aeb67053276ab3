"""All Prometheus metrics of the delivery service: names, types and descriptions."""

from __future__ import annotations

import os
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from hourmark_delivery_service.parsing import native

# prometheus_client's own: a folder that all workers of a service share
METRICS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
DEAD_LETTER_SERIES_MAX: Final = 2000  # a thousand types may be refused for a few reasons each
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ServiceMetrics:
    """The Prometheus metrics of one service process.

    Each instance has its own Prometheus registry, so that several instances can exist in one
    process, for example in tests.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._dead_letter_series: set[tuple[str, str, str]] = set()
        r = self.registry
        self.requests = Counter(
            "hourmark_service_requests", "Responses sent.", ["path", "status"], registry=r
        )
        self.request_seconds = Histogram(
            "hourmark_service_request_seconds",
            "Seconds from the first byte of a request to its response.",
            ["path"],
            buckets=_SECONDS,
            registry=r,
        )
        self.events = Counter(
            "hourmark_service_events", "Events acknowledged.", ["type"], registry=r
        )
        self.dead_letters = Counter(
            "hourmark_service_dead_letters",
            "Dead letters acknowledged. An empty type means that the line claimed no type, an "
            "empty source that it is not declared.",
            ["type", "source", "reason"],
            registry=r,
        )
        self.validated_events = Counter(
            "hourmark_service_validated_events",
            "Events checked by validation requests, by result: valid or rejected. None was stored.",
            ["type", "result"],
            registry=r,
        )
        self.blank_lines = Counter(
            "hourmark_service_blank_lines",
            "Blank lines acknowledged. They produce no record.",
            registry=r,
        )
        self.received_bytes = Counter(
            "hourmark_service_received_bytes",
            "Bytes acknowledged, after decompression.",
            registry=r,
        )
        self.inflight_bytes = Gauge(
            "hourmark_service_inflight_bytes",
            "Bytes of requests in progress.",
            registry=r,
            multiprocess_mode="livesum",
        )
        self.produce_errors = Counter(
            "hourmark_service_produce_errors",
            "Records that Kafka did not accept.",
            ["error"],
            registry=r,
        )
        self.topic_unavailable = Gauge(
            "hourmark_service_topic_unavailable",
            "1 for a topic that cannot accept records, because it is missing, or a partition "
            "has no leader or too few in-sync replicas. Absent if no problem was ever found.",
            ["topic"],
            registry=r,
            multiprocess_mode="livemax",
        )
        self.producer_renewals = Counter(
            "hourmark_service_producer_renewals", "Kafka producers recreated.", registry=r
        )
        self.rules_sequence = Gauge(
            "hourmark_service_rules_sequence",
            "Sequence of the latest rules revision.",
            registry=r,
            multiprocess_mode="livemin",
        )
        self.native = Gauge(
            "hourmark_service_native_pass",
            "1 if lines are parsed by the compiled module, 0 if by Python alone.",
            registry=r,
            multiprocess_mode="livemin",
        )
        self.native.set(native.MODULE is not None)
        self.reports = Counter(
            "hourmark_service_reports", "Host reports acknowledged.", ["kind"], registry=r
        )
        self.denied = Counter(
            "hourmark_service_denied",
            "Requests rejected because of their token, or because they had none.",
            ["reason"],
            registry=r,
        )
        self.tokens = Gauge(
            "hourmark_service_tokens",
            "Known tokens that are not revoked.",
            registry=r,
            multiprocess_mode="livemin",
        )
        self.tokens_lost = Gauge(
            "hourmark_service_tokens_lost",
            "Known tokens that hourmark.tokens no longer contains.",
            registry=r,
            multiprocess_mode="livemax",
        )
        self.tokens_read = Gauge(
            "hourmark_service_tokens_read_timestamp_seconds",
            "Unix time at which hourmark.tokens was last read to its end.",
            registry=r,
            multiprocess_mode="livemin",
        )

    def count_dead_letters(self, event_type: str, source: str, reason: str, count: int) -> None:
        """Increment the counter of acknowledged dead letters.

        A dead letter is the record of a line that is not a valid event. The number of label
        combinations is limited to `DEAD_LETTER_SERIES_MAX`. Beyond this limit, new combinations
        are counted with the type and source `(other)`.

        Args:
            event_type: Declared event type that the lines name, or an empty string.
            source: Declared source of the lines, or an empty string.
            reason: Machine-readable reason why the lines were rejected.
            count: Number of dead letters to add.
        """
        labels = (event_type, source, reason)
        if (
            labels not in self._dead_letter_series
            and len(self._dead_letter_series) >= DEAD_LETTER_SERIES_MAX
        ):
            labels = ("(other)", "(other)", reason)
        self._dead_letter_series.add(labels)
        self.dead_letters.labels(*labels).inc(count)

    def exposition(self) -> bytes:
        """Return all metrics in the Prometheus text format, for the `/metrics` endpoint.

        If the service has several worker processes, the values are aggregated over all of them.
        """
        if METRICS_VARIABLE not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]  # the library's
        return generate_latest(together)
