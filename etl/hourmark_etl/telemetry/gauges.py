"""How things stand, from what the ledger says: ages of open buckets, watermarks of types. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import Final

from hourmark_etl.closing.cut.readiness import LatestReports
from hourmark_etl.ledger.overview import Fixed
from hourmark_etl.model import Frontier, HourState, ReportedSource, StagedBatch
from hourmark_etl.telemetry.metrics import OLDEST_SHOWN, Gauges, Staged

WINDOW_SECONDS: Final = 300.0


class LagWindow:
    """Watermark lags of the last five minutes, a sample a minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, float]] = deque()

    def add(self, at_s: float, lags_s: Collection[float]) -> tuple[float, float]:
        """Take in the lags of all types now; mean and greatest of the window, in seconds."""
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
    """By type: the time up to which all sources that may carry it have caught up; at least the
    begin of its frontier hour.

    One pass over reporters and one over types, because there may be thousands of each.
    """
    reports = LatestReports(reporters)
    found = {}
    for f in (f for f in frontiers if f.state is not HourState.DAMAGED):
        slowest = [group[0].caught_up_at_ms or 0 for group in reports.awaited_reporters(f)]
        found[f.event_type] = max(f.hour.start_s * 1000, min([now_ms, *slowest]) if slowest else 0)
    return found


def slowest(
    frontiers: Collection[Frontier], reporters: Collection[ReportedSource]
) -> ReportedSource | None:
    """Of all sources that some type awaits, the one that has caught up least, or never; None where
    there is none.
    """
    reports = LatestReports(reporters)
    awaited = {
        r.source: r
        for f in frontiers
        if f.state is not HourState.DAMAGED
        for r, *_ in reports.awaited_reporters(f)
    }
    return min(awaited.values(), key=lambda r: r.caught_up_at_ms or 0, default=None)


def open_ages_s(frontiers: Collection[Frontier], now_ms: int) -> dict[str, float]:
    """Since the end of each frontier hour that has ended, the oldest first, the `OLDEST_SHOWN`
    oldest.
    """
    ended = sorted(
        (f for f in frontiers if f.hour.end_ms <= now_ms and f.state is not HourState.DAMAGED),
        key=lambda f: (f.hour, f.event_type),
    )
    return {f.event_type: (now_ms - f.hour.end_ms) / 1000 for f in ended[:OLDEST_SHOWN]}


def gauges_of(
    frontiers: Collection[Frontier],
    reporters: Collection[ReportedSource],
    *,
    set_aside: int,
    unreadable: int,
    buckets_in_conflict: int,
    overrides: int,
    lag_s: tuple[float, float],
    now_ms: int,
) -> Gauges:
    """What the metrics show of it. `lag_s`: mean and greatest watermark lag."""
    states, ages_s = Counter(f.state for f in frontiers), open_ages_s(frontiers, now_ms)
    stand = Counter("gone" if r.goodbye else "waived" if r.waived else "live" for r in reporters)
    return Gauges(
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


def staged_of(
    batch: StagedBatch, fixed: Mapping[str, Fixed], bucket_seconds: int, seconds: float, now_ms: int
) -> Staged:
    """What a committed batch counts as. `fixed`: by type, as it stood at the commit.

    An event is late if what its own hour's bucket holds was fixed before it was staged; falsely
    late if that bucket was not even published then.
    """
    timely = late = falsely_late = 0
    late_seconds = 0.0
    for g in batch.groups:
        of_type = fixed.get(g.event_type, Fixed(0, 0))
        if g.hour_s >= of_type.fixed_to_s:
            timely += g.rows
            continue
        late += g.rows
        falsely_late += g.rows if g.hour_s >= of_type.closed_to_s else 0
        late_seconds += g.rows * max(0.0, now_ms / 1000 - g.hour_s - bucket_seconds)
    kinds = Counter(f.kind for f in batch.files)
    return Staged(
        timely=timely,
        late=late,
        falsely_late=falsely_late,
        late_seconds=late_seconds,
        bytes=sum(g.datum_bytes for g in batch.groups),
        event_files=kinds["events"],
        audit_files=kinds["audit"],
        promised=sum(a.promised for a in batch.audit_groups),
        seconds=seconds,
    )
