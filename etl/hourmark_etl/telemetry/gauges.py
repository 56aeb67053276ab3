"""Computes gauge values from ledger data, such as bucket ages and watermarks. Performs no I/O."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import Final

from hourmark_etl.closing.cut.readiness import LatestReports
from hourmark_etl.ledger.maintenance.overview import FixedHours
from hourmark_etl.model import Frontier, HourState, ReportedSource, StagedBatch
from hourmark_etl.telemetry.metrics import OLDEST_SHOWN, BatchCounts, GaugeValues

WINDOW_SECONDS: Final = 300.0


class LagWindow:
    """Sliding window of watermark lags over the last five minutes.

    The watermark lag of an event type is the number of seconds by which its log sources are behind
    the current time. Each call of `add` contributes one sample. The ETL driver calls it once a
    minute.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, float]] = deque()

    def add(self, at_s: float, lags_s: Collection[float]) -> tuple[float, float]:
        """Add a sample to the window, and return the mean and maximum lag in seconds.

        Samples older than five minutes (`WINDOW_SECONDS`) are dropped.

        Args:
            at_s: Time of the sample on a monotonic clock, in seconds.
            lags_s: Current lag of each event type, in seconds. An empty collection counts as a lag
                of 0.

        Returns:
            A pair: the mean of the samples' means, and the maximum of all lags in the window.
        """
        mean = sum(lags_s) / len(lags_s) if lags_s else 0.0
        self._samples.append((at_s, mean, max(lags_s, default=0.0)))
        while at_s - self._samples[0][0] > WINDOW_SECONDS:
            self._samples.popleft()
        return sum(s[1] for s in self._samples) / len(self._samples), max(
            s[2] for s in self._samples
        )


def watermarks_ms(
    frontiers: Collection[Frontier], reporters: Collection[ReportedSource], now_ms: int
) -> dict[str, int]:
    """Return the watermark of each event type: the time up to which its log data is delivered.

    A watermark is the minimum over all live log sources that may deliver the type. The running time
    is linear in the number of sources and types.

    Args:
        frontiers: Oldest open hour of each event type.
        reporters: Latest report of each log source.
        now_ms: Current time, Unix milliseconds.

    Returns:
        Unix milliseconds by event type. A watermark is at most `now_ms` and at least the start of
        the type's oldest open hour; it is that start if the type has no live source. Types whose
        row in the ledger (the ETL's state database) is damaged are omitted.
    """
    reports = LatestReports(reporters)
    found = {}
    for f in (f for f in frontiers if f.state is not HourState.DAMAGED):
        slowest_source = [group[0].caught_up_at_ms or 0 for group in reports.awaited_reporters(f)]
        found[f.event_type] = max(
            f.hour.start_s * 1000, min([now_ms, *slowest_source]) if slowest_source else 0
        )
    return found


def slowest_source(
    frontiers: Collection[Frontier], reporters: Collection[ReportedSource]
) -> ReportedSource | None:
    """Return the log source that is furthest behind, among those that any open bucket waits for.

    A source that has never caught up counts as furthest behind. Event types whose row in the
    ledger (the ETL's state database) is damaged are ignored.

    Args:
        frontiers: Oldest open hour of each event type.
        reporters: Latest report of each log source.

    Returns:
        Latest report of this source; None if no event type waits for a source.
    """
    reports = LatestReports(reporters)
    awaited = {
        r.source: r
        for f in frontiers
        if f.state is not HourState.DAMAGED
        for r, *_ in reports.awaited_reporters(f)
    }
    return min(awaited.values(), key=lambda r: r.caught_up_at_ms or 0, default=None)


def oldest_open_ages_s(frontiers: Collection[Frontier], now_ms: int) -> dict[str, float]:
    """Return how long the next bucket of each event type has been overdue.

    Args:
        frontiers: Oldest open hour of each event type.
        now_ms: Current time, Unix milliseconds.

    Returns:
        Seconds since the end of the bucket's hour, or of the type's first hour if that is later, by
        event type. Only the 10 types with the oldest hours are included, oldest first. Types whose
        hour has not ended, or whose row in the ledger (the ETL's state database) is damaged, are
        omitted.
    """
    ended = sorted(
        (f for f in frontiers if f.due_ms <= now_ms and f.state is not HourState.DAMAGED),
        key=lambda f: (f.due_ms, f.event_type),
    )
    return {f.event_type: (now_ms - f.due_ms) / 1000 for f in ended[:OLDEST_SHOWN]}


def compute_gauges(
    frontiers: Collection[Frontier],
    reporters: Collection[ReportedSource],
    *,
    set_aside: int,
    unreadable: int,
    buckets_in_conflict: int,
    overrides: int,
    lag_s: tuple[float, float],
    now_ms: int,
) -> GaugeValues:
    """Compute the values of all Prometheus gauges that the ETL driver sets once a minute.

    Args:
        frontiers: Oldest open hour of each event type.
        reporters: Latest report of each log source.
        set_aside: Number of unreviewed records that cannot be stored in a bucket.
        unreadable: Number of topic-partitions that cannot be read.
        buckets_in_conflict: Number of open buckets with contradictory audit records.
        overrides: Number of pending orders to force a bucket closed.
        lag_s: Mean and maximum watermark lag, in seconds.
        now_ms: Current time, Unix milliseconds.

    Returns:
        The values, one for each gauge.
    """
    states, ages_s = Counter(f.state for f in frontiers), oldest_open_ages_s(frontiers, now_ms)
    stand = Counter("gone" if r.goodbye else "waived" if r.waived else "live" for r in reporters)
    return GaugeValues(
        types={state.value: states[state] for state in HourState},
        open_bucket_age=max(ages_s.values(), default=0.0),
        oldest_open=ages_s,
        types_in_alarm=sum(bool(f.alarm) for f in frontiers),
        records_set_aside=set_aside,
        partitions_unreadable=unreadable,
        buckets_in_conflict=buckets_in_conflict,
        overrides=overrides,
        reporters={how: stand[how] for how in ("live", "waived", "gone")},
        pending_bytes=sum(r.pending_bytes for r in reporters if not r.goodbye),
        lost_bytes=sum(r.lost_bytes for r in reporters),
        unknown_losses=sum(r.unknown_losses for r in reporters),
        watermark_lag={"mean": lag_s[0], "max": lag_s[1]},
    )


def count_batch_events(
    batch: StagedBatch,
    fixed_hours: Mapping[str, FixedHours],
    bucket_seconds: int,
    duration_s: float,
    now_ms: int,
) -> BatchCounts:
    """Count the timely and late events and the files of a committed micro-batch.

    An event is late if the content of its hour's bucket was already fixed when the batch was
    committed. A late event counts as falsely late if that bucket was not closed yet.

    Args:
        batch: Committed micro-batch.
        fixed_hours: Maps each event type to two hours, as of the commit: the first hour whose
            bucket was not closed, and the first hour whose bucket still accepted events. Events of
            a type that is absent count as timely.
        bucket_seconds: Length of a bucket in seconds.
        duration_s: Duration of the batch in seconds.
        now_ms: Current time, Unix milliseconds.

    Returns:
        Counts to pass to `EtlMetrics.count_batch`.
    """
    timely = late = falsely_late = 0
    late_seconds = 0.0
    for g in batch.groups:
        of_type = fixed_hours.get(g.event_type, FixedHours(0, 0))
        if g.hour_s >= of_type.fixed_to_s:
            timely += g.rows
            continue
        late += g.rows
        falsely_late += g.rows if g.hour_s >= of_type.closed_to_s else 0
        late_seconds += g.rows * max(0.0, now_ms / 1000 - g.hour_s - bucket_seconds)
    kinds = Counter(f.kind for f in batch.files)
    return BatchCounts(
        timely=timely,
        late=late,
        falsely_late=falsely_late,
        late_seconds=late_seconds,
        bytes=sum(g.datum_bytes for g in batch.groups),
        event_files=kinds["events"],
        audit_files=kinds["audit"],
        promised=sum(a.promised for a in batch.audit_groups),
        duration_s=duration_s,
    )
