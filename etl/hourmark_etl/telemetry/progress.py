"""Progress of a running driver: updates counters and gauges, and logs a progress line.

The gauges are computed once a minute with a few queries, each of which reads all event types or
all reporting sources once. Every `PROGRESS_SECONDS`, one log line summarizes the progress for
operators.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Sequence
from typing import Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from sqlalchemy.exc import SQLAlchemyError

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark_etl.humanize import format_count, format_duration
from hourmark_etl.ledger.conflicts import conflicts
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.hosts.reporters import reporters
from hourmark_etl.ledger.maintenance import overview
from hourmark_etl.ledger.overrides import blockers, overrides
from hourmark_etl.ledger.partitions.read_errors import read_errors
from hourmark_etl.ledger.staged.set_aside import count_unreviewed_records
from hourmark_etl.model import Frontier, ReportedSource, StagedBatch
from hourmark_etl.telemetry.gauges import (
    LagWindow,
    compute_gauges,
    count_batch_events,
    slowest_source,
    watermarks_ms,
)
from hourmark_etl.telemetry.metrics import CounterTotals, EtlMetrics

PROGRESS_SECONDS: Final = 30.0
QUIET_SECONDS: Final = 300.0  # between log lines while nothing is staged, closed or overdue
POLL_SECONDS: Final = 60.0
OVERDUE_SECONDS: Final = 60.0  # an hour that has just ended is not worth reporting
_LEDGER_AWAY: Final = (Unavailable, SQLAlchemyError)  # missing metrics must not stop the driver
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class OverdueHour:
    """The oldest overdue hour across all event types.

    An hour is overdue if it has ended but its bucket is not closed.

    Attributes:
        event_type: Event type of the hour.
        hour: The hour as text, for example `2026-01-31T12`.
        age_s: Seconds since the end of the hour, or since the end of the type's first hour if that
            is later.
        causes: Human-readable causes of the delay; empty if none is known.
    """

    event_type: str
    hour: str
    age_s: float
    causes: tuple[str, ...]


class DriverProgress:
    """Reporter that updates the metrics of one ETL driver and logs its progress.

    Instances are thread-safe: consumer threads call `record_batch`, and the driver's main loop
    calls `record_poll`.

    Args:
        database: The ledger (the ETL's state database), from which gauges are computed.
        metrics: The metrics to update.
        bucket_seconds: Length of a bucket in seconds.
        clock: Clock for the intervals between reports.
    """

    def __init__(
        self, database: Database, metrics: EtlMetrics, bucket_seconds: int, clock: Clock
    ) -> None:
        self._database, self._metrics, self._bucket_seconds, self._clock = (
            database,
            metrics,
            bucket_seconds,
            clock,
        )
        self._lags = LagWindow()
        self._polled_at_s = -POLL_SECONDS
        self._logged_at_s = clock.monotonic_s()
        self._logged_totals = metrics.totals()
        self._lock = threading.Lock()

    def record_batch(self, batch: StagedBatch, duration_s: float) -> None:
        """Add the events and files of a committed micro-batch to the metrics.

        If the ledger (the ETL's state database) cannot be read, a warning is logged and the batch
        is not counted.

        Args:
            batch: Committed micro-batch.
            duration_s: Duration of the batch in seconds.
        """
        try:
            fixed = overview.read_fixed_hours(self._database, self._bucket_seconds)
        except _LEDGER_AWAY as error:
            _LOG.warning("a batch is committed, but not counted: %s", error)
            return
        now_ms = self._clock.now_ms()
        self._metrics.count_batch(
            count_batch_events(batch, fixed, self._bucket_seconds, duration_s, now_ms), now_ms
        )

    def record_poll(self, closing_error: str = "") -> None:
        """Record one poll of the driver's main loop, and report progress if it is due.

        Gauges are set every minute. A progress line is logged every 30 seconds, or every 5 minutes
        while nothing happens and no hour is overdue. If the ledger (the ETL's state database)
        cannot be read, a warning is logged instead.

        Args:
            closing_error: Human-readable reason why no bucket can be closed at the moment; empty if
                there is none.
        """
        self._metrics.record_poll(self._clock.now_ms())
        now_s = self._clock.monotonic_s()
        with self._lock:
            try:
                if now_s - self._polled_at_s >= POLL_SECONDS:
                    self._polled_at_s = now_s
                    self._poll(now_s)
                if now_s - self._logged_at_s >= PROGRESS_SECONDS:
                    self._log_progress(now_s, closing_error)
            except _LEDGER_AWAY as error:
                _LOG.warning("the progress cannot be computed: %s", error)

    def _frontiers(self) -> list[Frontier]:
        return frontiers(self._database, self._bucket_seconds)

    def _poll(self, now_s: float) -> None:
        now_ms, found, reports = self._clock.now_ms(), self._frontiers(), reporters(self._database)
        lags = [(now_ms - mark) / 1000 for mark in watermarks_ms(found, reports, now_ms).values()]
        self._metrics.set_gauges(
            compute_gauges(
                found,
                reports,
                set_aside=count_unreviewed_records(self._database),
                unreadable=len(read_errors(self._database)),
                buckets_in_conflict=len(
                    {
                        (c.event_type, c.hour_s)
                        for of in conflicts(self._database).values()
                        for c in of
                    }
                ),
                overrides=len(overrides(self._database)),
                lag_s=self._lags.add(now_s, lags),
                now_ms=now_ms,
            )
        )

    def _log_progress(self, now_s: float, closing_error: str) -> None:
        now_ms, found, totals = self._clock.now_ms(), self._frontiers(), self._metrics.totals()
        oldest = self._oldest(found, now_ms)
        quiet = totals == self._logged_totals and oldest is None and not closing_error
        if quiet and now_s - self._logged_at_s < QUIET_SECONDS:
            return
        reports = reporters(self._database)
        behind = (
            format_caught_up(slowest_source(found, reports), now_ms)
            if reports
            else "no source has reported yet"
        )
        _LOG.info(
            "%s",
            format_progress(
                totals.increase_since(self._logged_totals),
                now_s - self._logged_at_s,
                behind,
                oldest,
                closing_error,
            ),
        )
        self._logged_at_s, self._logged_totals = now_s, totals

    def _oldest(self, found: Sequence[Frontier], now_ms: int) -> OverdueHour | None:
        f = min(found, key=lambda f: (f.due_ms, f.event_type), default=None)
        if f is None or now_ms - f.due_ms < OVERDUE_SECONDS * 1000:
            return None
        wait = blockers(self._database, self._bucket_seconds).get(f.event_type)
        what = wait.what if wait is not None and wait.applies_to(f) else f.alarm
        return OverdueHour(f.event_type, str(f.hour), (now_ms - f.due_ms) / 1000, tuple(what))


def format_caught_up(source: ReportedSource | None, now_ms: int) -> str:
    """Describe how far the log sources have caught up, as a phrase for a progress line.

    A source has caught up if all of its data has been delivered.

    Args:
        source: Latest report of the slowest source, from `slowest_source`; None if no bucket waits
            for a source.
        now_ms: Current time, Unix milliseconds.

    Returns:
        A phrase such as `all sources had caught up 5 min ago`, `web has not caught up yet` or `no
        source is awaited`.
    """
    if source is None:
        return "no source is awaited"
    if source.caught_up_at_ms is None:
        return f"{source.name} has not caught up yet"
    return f"all sources had caught up {format_duration(max(0, now_ms - source.caught_up_at_ms) / 1000)} ago"


def format_progress(
    increase: CounterTotals,
    interval_s: float,
    catch_up: str,
    overdue: OverdueHour | None,
    closing_error: str,
) -> str:
    """Format the progress of the ETL driver during an interval as one log line.

    The line covers staged events (copied from Kafka to storage), late events (whose bucket no
    longer accepted events), closed buckets, and the oldest overdue bucket.

    Args:
        increase: Increase of the counters during the interval.
        interval_s: Length of the interval in seconds; greater than 0.
        catch_up: Phrase from `format_caught_up`.
        overdue: Oldest hour that has ended but is not closed; None if there is none.
        closing_error: Human-readable reason why no bucket can be closed; empty if there is none.

    Returns:
        Phrases separated by semicolons.
    """
    events = increase.timely + increase.late
    parts = [
        f"{format_count(events, 'event')} staged in {format_duration(interval_s)} "
        f"({events / interval_s:,.0f}/s)"
    ]
    if increase.late:
        parts.append(
            f"{increase.late:,.0f} of them late, by {format_duration(increase.late_seconds / increase.late)} "
            "on average"
        )
    if increase.batches:
        batches, each_s = (
            format_count(increase.batches, "batch", "batches"),
            increase.batch_seconds / increase.batches,
        )
        parts.append(f"{format_count(increase.files, 'file')} in {batches} of {each_s:.1f} s")
    closed = f"{format_count(increase.buckets, 'bucket')} closed"
    parts.append(
        f"{closed}, {increase.not_proved:,.0f} of them not proved"
        if increase.not_proved
        else closed
    )
    parts.append(catch_up)
    if overdue is not None:
        what = "; ".join(overdue.causes[:3]) or "the closer's next poll"
        parts.append(
            f"oldest open bucket {overdue.event_type} {overdue.hour}, overdue for "
            f"{format_duration(overdue.age_s)}, waits for: {what} "
            f"(`hourmark bucket why {overdue.event_type} {overdue.hour}`)"
        )
    if closing_error:
        parts.append(f"closing is blocked: {closing_error}")
    return "; ".join(parts)


class BatchListener(StreamingQueryListener):
    """Spark listener that records durations of micro-batch phases and counts ended queries.

    It updates the driver's Prometheus metrics. Register an instance with Spark's
    `StreamingQueryManager.addListener`.

    Args:
        metrics: The metrics to update.
    """

    def __init__(self, metrics: EtlMetrics) -> None:
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add the durations of a finished micro-batch to the metric `batch_phase_seconds`.

        Spark calls this method after each micro-batch of any query. Each phase has its own label
        value, and the total duration of the batch is not added.

        Args:
            event: Progress event of Spark.
        """
        for phase, milliseconds in event.progress.durationMs.items():
            if phase != "triggerExecution":  # the sum of the others
                self._metrics.batch_phase_seconds.labels(phase).inc(milliseconds / 1000)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Count a query that has ended in the metric `queries_ended`.

        Spark calls this method. The query counts as `failed` if it ended with an exception,
        otherwise as `stopped`.

        Args:
            event: Termination event of Spark.
        """
        self._metrics.queries_ended.labels("failed" if event.exception else "stopped").inc()
