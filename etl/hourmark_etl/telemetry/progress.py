"""What a driver says of itself while it runs: counts what it did, looks once a minute at how things
stand, and every `PROGRESS_SECONDS` says both in one line that an operator understands.

Looking costs a handful of queries a minute, each one pass over types or reporters.
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
from hourmark_etl.ledger import overview
from hourmark_etl.ledger.conflicts import conflicts
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.overrides import blockers, overrides
from hourmark_etl.ledger.read_errors import read_errors
from hourmark_etl.ledger.reporters import reporters
from hourmark_etl.ledger.set_aside import unreviewed_records
from hourmark_etl.model import Frontier, ReportedSource, StagedBatch
from hourmark_etl.telemetry.gauges import LagWindow, gauges_of, slowest, staged_of, watermarks_ms
from hourmark_etl.telemetry.metrics import Metrics, Totals

PROGRESS_SECONDS: Final = 30.0
QUIET_SECONDS: Final = (
    300.0  # between lines while nothing is staged or closed, and nothing is overdue
)
POLL_SECONDS: Final = 60.0
OVERDUE_SECONDS: Final = 60.0  # an hour that ended a moment ago is no news
_LEDGER_AWAY: Final = (Unavailable, SQLAlchemyError)  # figures are no reason to stop a driver
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest hour that has ended and is not closed, and what it waits for."""

    event_type: str
    hour: str
    age_s: float
    waits_for: tuple[str, ...]


class Progress:
    """One for a driver. Consumers call `staged` from their threads, the loop calls `polled`."""

    def __init__(
        self, database: Database, metrics: Metrics, bucket_seconds: int, clock: Clock
    ) -> None:
        self._database, self._metrics, self._bucket_seconds, self._clock = (
            database,
            metrics,
            bucket_seconds,
            clock,
        )
        self._lags = LagWindow()
        self._polled_at_s = -POLL_SECONDS
        self._told_at_s = clock.monotonic_s()
        self._told = metrics.totals()
        self._lock = threading.Lock()

    def staged(self, batch: StagedBatch, seconds: float) -> None:
        """A micro-batch has been committed; it took so long."""
        try:
            fixed = overview.fixed_hours(self._database, self._bucket_seconds)
        except _LEDGER_AWAY as error:
            _LOG.warning("a batch is committed, but not counted: %s", error)
            return
        now_ms = self._clock.now_ms()
        self._metrics.staged(staged_of(batch, fixed, self._bucket_seconds, seconds, now_ms), now_ms)

    def polled(self, trouble: str = "") -> None:
        """Once a poll of the driver's loop.

        `trouble`: what keeps all of closing, in words; empty where nothing does.
        """
        self._metrics.polled(self._clock.now_ms())
        now_s = self._clock.monotonic_s()
        with self._lock:
            try:
                if now_s - self._polled_at_s >= POLL_SECONDS:
                    self._polled_at_s = now_s
                    self._poll(now_s)
                if now_s - self._told_at_s >= PROGRESS_SECONDS:
                    self._tell(now_s, trouble)
            except _LEDGER_AWAY as error:
                _LOG.warning("no look at how things stand: %s", error)

    def _frontiers(self) -> list[Frontier]:
        return frontiers(self._database, self._bucket_seconds)

    def _poll(self, now_s: float) -> None:
        now_ms, found, said = self._clock.now_ms(), self._frontiers(), reporters(self._database)
        lags = [(now_ms - mark) / 1000 for mark in watermarks_ms(found, said, now_ms).values()]
        self._metrics.stands(
            gauges_of(
                found,
                said,
                set_aside=unreviewed_records(self._database),
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

    def _tell(self, now_s: float, trouble: str) -> None:
        now_ms, found, totals = self._clock.now_ms(), self._frontiers(), self._metrics.totals()
        oldest = self._oldest(found, now_ms)
        quiet = totals == self._told and oldest is None and not trouble
        if quiet and now_s - self._told_at_s < QUIET_SECONDS:
            return
        said = reporters(self._database)
        behind = caught_up(slowest(found, said), now_ms) if said else "no source has reported yet"
        _LOG.info(
            "%s",
            progress_line(
                totals.since(self._told), now_s - self._told_at_s, behind, oldest, trouble
            ),
        )
        self._told_at_s, self._told = now_s, totals

    def _oldest(self, found: Sequence[Frontier], now_ms: int) -> Oldest | None:
        f = min(found, key=lambda f: (f.hour, f.event_type), default=None)
        if f is None or now_ms - f.hour.end_ms < OVERDUE_SECONDS * 1000:
            return None
        wait = blockers(self._database, self._bucket_seconds).get(f.event_type)
        what = wait.what if wait is not None and wait.hour == f.hour else f.alarm
        return Oldest(f.event_type, str(f.hour), (now_ms - f.hour.end_ms) / 1000, tuple(what))


def caught_up(slowest: ReportedSource | None, now_ms: int) -> str:
    """How far sources have caught up, of which this is the slowest: nothing is said of a time
    before it reported.
    """
    if slowest is None:
        return "no source is awaited"
    if slowest.caught_up_at_ms is None:
        return f"{slowest.name} has not caught up yet"
    return f"all sources had caught up {format_duration(max(0, now_ms - slowest.caught_up_at_ms) / 1000)} ago"


def progress_line(
    done: Totals, interval_s: float, behind: str, oldest: Oldest | None, trouble: str
) -> str:
    """What was done in the interval, how far behind it is (`caught_up`), and what holds the oldest
    bucket.
    """
    events = done.timely + done.late
    said = [
        f"{format_count(events, 'event')} staged in {format_duration(interval_s)} "
        f"({events / interval_s:,.0f}/s)"
    ]
    if done.late:
        said.append(
            f"{done.late:,.0f} of them late, by {format_duration(done.late_seconds / done.late)} "
            "on average"
        )
    if done.batches:
        batches, each_s = (
            format_count(done.batches, "batch", "batches"),
            done.batch_seconds / done.batches,
        )
        said.append(f"{format_count(done.files, 'file')} in {batches} of {each_s:.1f} s")
    closed = f"{format_count(done.buckets, 'bucket')} closed"
    said.append(f"{closed}, {done.not_proved:,.0f} not as proved" if done.not_proved else closed)
    said.append(behind)
    if oldest is not None:
        what = "; ".join(oldest.waits_for[:3]) or "the closer's next poll"
        said.append(
            f"oldest open bucket {oldest.event_type} {oldest.hour}, ended "
            f"{format_duration(oldest.age_s)} ago, waits for: {what} "
            f"(`hourmark bucket why {oldest.event_type} {oldest.hour}`)"
        )
    if trouble:
        said.append(f"closing waits: {trouble}")
    return "; ".join(said)


class BatchListener(StreamingQueryListener):
    """Spark's own view of the queries: where a micro-batch's time went, and whether a query
    failed.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to count."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add up the batch's phases."""
        for phase, milliseconds in event.progress.durationMs.items():
            if phase != "triggerExecution":  # the sum of the others
                self._metrics.batch_phase_seconds.labels(phase).inc(milliseconds / 1000)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to count."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """A query that was stopped has no exception."""
        self._metrics.queries_ended.labels("failed" if event.exception else "stopped").inc()
