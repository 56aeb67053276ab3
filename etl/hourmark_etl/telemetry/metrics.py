"""All metrics of the ETL with their names, kinds, units and help texts.

docs/metrics.md explains how to interpret them. No metric has a label per event type, because a
thousand types would create a thousand series of each metric. Instead there are sums over types, and
the `OLDEST_SHOWN` oldest open buckets by type. Counters follow the driver's actions; gauges are set
once a minute from the ledger (`GaugeValues`).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hourmark.records.manifest import Grade, Manifest
from hourmark_etl.model import from_row

OLDEST_SHOWN: Final = 10
_BATCH_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_CLOSING_SECONDS: Final = (
    1.0,
    5.0,
    15.0,
    30.0,
    60.0,
    300.0,
    900.0,
    1800.0,
    3600.0,
    7200.0,
    14400.0,
    43200.0,
    86400.0,
    604800.0,
)
_KINDS: Final = ("events", "audit")  # of staged files


class Timeliness(enum.StrEnum):
    """Classification of events by whether they arrived in time for the bucket of their own hour.

    A `TIMELY` event is stored in the bucket of its own hour, a `LATE` event in the bucket of a
    later hour.
    """

    TIMELY = "timely"
    LATE = "late"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Counts that one committed micro-batch adds to the metrics.

    Attributes:
        timely: Number of events whose bucket still accepted events.
        late: Number of events whose bucket no longer accepted events.
        falsely_late: Number of late events whose bucket was not closed yet.
        late_seconds: Total lateness of all late events in seconds. The lateness of an event is the
            time since the end of its hour.
        bytes: Total size of the events' Avro datums in bytes.
        event_files: Number of staged files (copies of Kafka records) with events.
        audit_files: Number of staged files with audit records.
        promised: Number of events that the copied audit records state.
        duration_s: Duration of the batch in seconds.
    """

    timely: int
    late: int
    falsely_late: int
    late_seconds: float
    bytes: int
    event_files: int
    audit_files: int
    promised: int
    duration_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GaugeValues:
    """Values of all gauges at one point in time.

    Each field is named after its metric in `EtlMetrics`.

    Attributes:
        types: Number of event types, by the state of their oldest open hour.
        open_bucket_age: Seconds since the end of the oldest open hour; 0 if none has ended.
        oldest_open: Seconds since the end of the oldest open hour, for the 10 event types that are
            furthest behind.
        types_in_alarm: Number of event types for which the last check for completeness failed.
        records_set_aside: Number of unreviewed records that cannot be stored in a bucket.
        partitions_unreadable: Number of topic-partitions that cannot be read.
        buckets_in_conflict: Number of open buckets with contradictory audit records, which list
            different events for the same byte range of a log file.
        overrides: Number of pending orders to force a bucket closed.
        reporters: Number of log sources by state: "gone" if the source has signed off, "waived" if
            a bucket was closed without waiting for it, otherwise "live".
        pending_bytes: Bytes that hosts have not delivered yet.
        lost_bytes: Bytes that were lost on hosts before they were read.
        unknown_losses: Number of losses on hosts whose size is unknown.
        watermark_lag: Lag of event types in seconds, with the keys "mean" and "max".
    """

    types: Mapping[str, int]
    open_bucket_age: float
    oldest_open: Mapping[str, float]
    types_in_alarm: int
    records_set_aside: int
    partitions_unreadable: int
    buckets_in_conflict: int
    overrides: int
    reporters: Mapping[str, int]
    pending_bytes: int
    lost_bytes: int
    unknown_losses: int
    watermark_lag: Mapping[str, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CounterTotals:
    """Values of the main counters, or their increase between two points in time.

    The ETL driver logs them as a progress line.

    Attributes:
        timely: Staged events whose bucket still accepted events.
        late: Staged events whose bucket no longer accepted events.
        late_seconds: Total lateness of all late events in seconds. The lateness of an event is the
            time since the end of its hour.
        files: Staged files, which hold copies of Kafka records.
        batches: Committed micro-batches.
        batch_seconds: Total duration of the micro-batches in seconds.
        buckets: Closed buckets.
        not_proved: Closed buckets whose grade is not `proved`, so that events may be missing.
    """

    timely: float = 0
    late: float = 0
    late_seconds: float = 0
    files: float = 0
    batches: float = 0
    batch_seconds: float = 0
    buckets: float = 0
    not_proved: float = 0

    def increase_since(self, earlier: CounterTotals) -> CounterTotals:
        """Return the increase of each counter since an earlier point in time.

        Args:
            earlier: Totals of the same `EtlMetrics` instance at the earlier time.

        Returns:
            The increase of each counter.
        """
        return from_row(
            CounterTotals,
            map(operator.sub, dataclasses.astuple(self), dataclasses.astuple(earlier)),
        )


class EtlMetrics:
    """Prometheus metrics of one ETL driver, in a separate registry.

    Several instances may exist in one process, for example in tests. Instances are thread-safe.

    Attributes:
        registry: The registry to export; each metric in it is also an attribute of the instance.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(
            name: str, meaning: str, label: str = "", values: Iterable[str] = ()
        ) -> Counter:
            made = Counter(name, meaning, [label] if label else [], registry=self.registry)
            for value in values:  # export these series with value 0 from the start
                made.labels(value)
            return made

        gauge = functools.partial(Gauge, registry=self.registry)
        histogram = functools.partial(Histogram, registry=self.registry)
        self.events_staged = counter(
            "hourmark_etl_events_staged",
            "Events staged: timely, or late for the bucket of their hour.",
            "arrival",
            Timeliness,
        )
        self.events_falsely_late = counter(
            "hourmark_etl_events_falsely_late",
            "Late events staged after their bucket was frozen, before it was published.",
        )
        self.late_seconds = counter(
            "hourmark_etl_late_seconds",
            "Seconds from the end of the hour to staging, summed over all late events.",
        )
        self.events_promised = counter(
            "hourmark_etl_events_promised", "Events promised by audit records staged."
        )
        self.staged_bytes = counter(
            "hourmark_etl_staged_bytes", "Bytes of the datums of events staged."
        )
        self.staged_files = counter(
            "hourmark_etl_staged_files", "Staged files committed.", "kind", _KINDS
        )
        self.batch_seconds = histogram(
            "hourmark_etl_batch_seconds",
            "Seconds from the start of a micro-batch to its commit.",
            buckets=_BATCH_SECONDS,
        )
        self.batch_phase_seconds = counter(
            "hourmark_etl_batch_phase_seconds",
            "Seconds that Spark spent in each phase of micro-batches.",
            "phase",
        )
        self.queries_ended = counter(
            "hourmark_etl_queries_ended",
            "Streaming queries that ended.",
            "how",
            ("stopped", "failed"),
        )
        self.last_batch = gauge(
            "hourmark_etl_last_batch_timestamp_seconds", "Unix time of the last commit."
        )

        self.buckets_closed = counter(
            "hourmark_etl_buckets_closed",
            "Buckets closed.",
            "grade",
            (grade.value for grade in Grade),
        )
        self.closing_delay = histogram(
            "hourmark_etl_closing_delay_seconds",
            "Seconds from the end of an hour to its _SUCCESS file.",
            buckets=_CLOSING_SECONDS,
        )
        self.events_closed = counter(
            "hourmark_etl_events_closed", "Events in closed buckets.", "arrival", Timeliness
        )
        self.duplicates_removed = counter(
            "hourmark_etl_duplicates_removed", "Rows dropped as duplicates."
        )
        self.unaudited = counter(
            "hourmark_etl_unaudited_events",
            "Events in closed buckets without an audit record so far.",
        )
        self.last_poll = gauge(
            "hourmark_etl_last_poll_timestamp_seconds", "Unix time of the driver's last poll."
        )

        self.types = gauge(
            "hourmark_etl_types", "Types, by the state of their frontier hour.", ["state"]
        )
        self.open_bucket_age = gauge(
            "hourmark_etl_open_bucket_age_seconds",
            "Seconds since the end of the oldest hour that is not closed.",
        )
        self.oldest_open = gauge(
            "hourmark_etl_oldest_open_buckets_seconds",
            f"The same of the {OLDEST_SHOWN} oldest, by type.",
            ["type"],
        )
        self.types_in_alarm = gauge(
            "hourmark_etl_types_in_alarm", "Event types whose last proof failed."
        )
        self.buckets_in_conflict = gauge(
            "hourmark_etl_buckets_in_conflict",
            "Open buckets of a range with two audit records that differ.",
        )
        self.records_set_aside = gauge(
            "hourmark_etl_records_set_aside",
            "Records on topics of events that cannot be staged, and that were not reviewed.",
        )
        self.partitions_unreadable = gauge(
            "hourmark_etl_partitions_unreadable",
            "Partitions of the central cluster that could not be read when last tried.",
        )
        self.overrides = gauge(
            "hourmark_etl_overrides", "Overrides (`bucket force`) that are not carried out yet."
        )
        self.reporters = gauge(
            "hourmark_etl_reporters", "Sources and services of hosts.", ["state"]
        )
        self.pending_bytes = gauge(
            "hourmark_etl_host_pending_bytes", "Bytes that hosts have not sent yet."
        )
        self.lost_bytes = gauge(
            "hourmark_etl_host_lost_bytes", "Bytes lost on hosts before they were read."
        )
        self.unknown_losses = gauge(
            "hourmark_etl_host_unknown_losses",
            "Losses on hosts whose size is unknown.",
        )
        self.watermark_lag = gauge(
            "hourmark_etl_watermark_lag_seconds",
            "Seconds since all sources of a type were last caught up, over all types and the "
            "last 5 minutes.",
            ["statistic"],
        )

    def count_batch(self, batch: BatchCounts, now_ms: int) -> None:
        """Add the counts of a committed micro-batch to the counters.

        The metric of the last commit is set to `now_ms`.

        Args:
            batch: Counts to add, from `count_batch_events`.
            now_ms: Time of the commit, Unix milliseconds.
        """
        self.events_staged.labels(Timeliness.TIMELY).inc(batch.timely)
        self.events_staged.labels(Timeliness.LATE).inc(batch.late)
        self.events_falsely_late.inc(batch.falsely_late)
        self.late_seconds.inc(batch.late_seconds)
        self.events_promised.inc(batch.promised)
        self.staged_bytes.inc(batch.bytes)
        self.staged_files.labels("events").inc(batch.event_files)
        self.staged_files.labels("audit").inc(batch.audit_files)
        self.batch_seconds.observe(batch.duration_s)
        self.last_batch.set(now_ms / 1000)

    def count_closed_bucket(self, due_ms: int, manifest: Manifest) -> None:
        """Update the metrics after a bucket is closed.

        The metrics cover the grade (whether the bucket is proved complete), the closing delay, the
        timely and late events, removed duplicates, and events without an audit record.

        Args:
            due_ms: Time from which the closing delay is measured, Unix milliseconds: the end of the
                bucket's hour, or the end of the type's first hour if that is later.
            manifest: Manifest of the bucket.
        """
        late = sum(manifest.late.values())
        self.buckets_closed.labels(manifest.grade.value).inc()
        self.closing_delay.observe(max(0.0, (manifest.closed_at_ms - due_ms) / 1000))
        self.events_closed.labels(Timeliness.TIMELY).inc(manifest.events - late)
        self.events_closed.labels(Timeliness.LATE).inc(late)
        self.duplicates_removed.inc(manifest.duplicates_removed)
        self.unaudited.inc(manifest.unaudited)

    def record_poll(self, now_ms: int) -> None:
        """Set the metric that shows when the driver's main loop last polled.

        Args:
            now_ms: Time of the poll, Unix milliseconds.
        """
        self.last_poll.set(now_ms / 1000)

    def set_gauges(self, values: GaugeValues) -> None:
        """Set all gauges that the driver computes once a minute.

        Event types that are absent from `values.oldest_open` are removed from that metric.

        Args:
            values: Current values, from `compute_gauges`.
        """
        self.oldest_open.clear()
        for field in dataclasses.fields(values):
            gauge, found = getattr(self, field.name), getattr(values, field.name)
            if isinstance(found, Mapping):
                for label, value in found.items():
                    gauge.labels(label).set(value)
            else:
                gauge.set(found)

    def totals(self) -> CounterTotals:
        """Return the current values of the main counters.

        Two results can be compared with `CounterTotals.increase_since`.

        Returns:
            Totals since this instance was created.
        """
        grades = {
            grade: self._value("hourmark_etl_buckets_closed_total", grade=grade.value)
            for grade in Grade
        }
        return CounterTotals(
            timely=self._value("hourmark_etl_events_staged_total", arrival=Timeliness.TIMELY),
            late=self._value("hourmark_etl_events_staged_total", arrival=Timeliness.LATE),
            late_seconds=self._value("hourmark_etl_late_seconds_total"),
            files=sum(self._value("hourmark_etl_staged_files_total", kind=kind) for kind in _KINDS),
            batches=self._value("hourmark_etl_batch_seconds_count"),
            batch_seconds=self._value("hourmark_etl_batch_seconds_sum"),
            buckets=sum(grades.values()),
            not_proved=sum(count for grade, count in grades.items() if grade is not Grade.PROVED),
        )

    def _value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0
