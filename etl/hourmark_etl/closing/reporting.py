"""Reports of the closer: blockers in the ledger, and log lines about closed buckets.

Both are limited: a poll that changes nothing writes nothing, and the many buckets of a backlog
share one log line per type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from hourmark.clock import Clock
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.closing.holds import HoldReason
from hourmark_etl.humanize import format_count
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.overrides import Blocker, blockers, put_blockers
from hourmark_etl.model import ClosingPhase

REWORD_MS: Final = 5_000  # between changes of the text only, for example of an offset in it


class BlockerWriter:
    """Stores the reasons why the next hourly bucket of each event type is not closed yet.

    `hourmark bucket why` shows these reasons. They are stored in the ledger, the ETL's state
    database. Only changes are written; a change of the text alone is written at most every 5
    seconds. The rows are cached, so only one instance may exist. The closer's lease ensures this.

    Args:
        database: Database of the ledger.
        lease: Lease of the closer, the process that closes buckets.
        clock: Clock for the time at which a type became blocked.
        bucket_seconds: Length of a bucket in seconds.
    """

    def __init__(self, database: Database, lease: Lease, clock: Clock, bucket_seconds: int) -> None:
        self._database, self._lease, self._clock = database, lease, clock
        self._written = blockers(database, bucket_seconds)
        self._reworded_ms = dict.fromkeys(self._written, 0)

    def update(self, now: Mapping[str, HoldReason]) -> None:
        """Store the reason for each blocked event type, and delete the rows of all other types.

        Args:
            now: Current reason by event type, for all blocked types.

        Raises:
            StaleDriver: Another closer has taken over the lease.
        """
        now_ms = self._clock.now_ms()
        gone = sorted(self._written.keys() - now.keys())
        changed = [b for t, reason in now.items() if (b := self._changed(t, *reason, now_ms))]
        if not gone and not changed:
            return
        put_blockers(self._database, self._lease, changed, gone)
        for t in gone:
            del self._written[t]
        for b in changed:
            self._written[b.event_type], self._reworded_ms[b.event_type] = b, now_ms

    def _changed(
        self, event_type: str, hour: Hour, phase: ClosingPhase, what: tuple[str, ...], now_ms: int
    ) -> Blocker | None:
        before, since_ms = self._written.get(event_type), now_ms
        if before and (before.hour, before.phase) == (hour, phase):
            if before.what == what or now_ms - self._reworded_ms[event_type] < REWORD_MS:
                return None
            since_ms = before.since_ms
        return Blocker(event_type=event_type, hour=hour, phase=phase, what=what, since_ms=since_ms)


_EACH_MAX: Final = 3  # buckets of a type that get a line each


def format_closed_buckets(manifests: Iterable[Manifest]) -> Iterator[str]:
    """Yield log lines that report closed buckets, grouped by event type.

    Up to three buckets of a type get one line each. If there are more, one line summarizes all
    buckets of the type.

    Args:
        manifests: Manifests of the closed buckets. The manifests of one type must be in ascending
            order of hours.

    Yields:
        Lines with event type, hour, grade and event counts.
    """
    of: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        of.setdefault(manifest.type, []).append(manifest)
    for name, closed in of.items():
        if len(closed) > _EACH_MAX:
            grades = Counter(manifest.grade.value for manifest in closed)
            graded = ", ".join(
                f"{format_count(number, 'bucket')} closed as {grade}"
                for grade, number in grades.most_common()
            )
            yield f"{name} {closed[0].hour} to {closed[-1].hour}: {graded}: {_counts(closed)}"
        else:
            yield from (
                f"{name} {one.hour} closed as {one.grade.value}: {_counts([one])}" for one in closed
            )


def _counts(closed: Sequence[Manifest]) -> str:
    last = closed[-1]
    end_ms = Hour.parse(last.hour, last.bucket_seconds).end_ms
    which = "the last one " if len(closed) > 1 else ""
    return (
        f"{format_count(sum(one.events for one in closed), 'event')}, "
        f"{sum(sum(one.late.values()) for one in closed):,} late, "
        f"{format_count(sum(one.duplicates_removed for one in closed), 'duplicate')} removed, "
        f"{sum(one.unaudited for one in closed):,} unaudited, "
        f"{which}{(last.closed_at_ms - end_ms) / 1000:.1f} s after its end"
    )
