"""Maintains the ledger's table `blockers` with few writes, independent of the number of polls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hourmark.clock import Clock
from hourmark.records.hours import Hour
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.overrides import Blocker, blockers, put_blockers
from hourmark_etl.model import ClosingPhase

REWORD_MS: Final = (
    5_000  # minimum interval between changes of only the text, for example a new offset
)
Blockers = Mapping[str, tuple[Hour, ClosingPhase, tuple[str, ...]]]  # by type: hour, phase, what


class BlockerWriter:
    """Stores in the ledger what each event type's next hour waits for.

    Only changes are written: to the table `blockers`, and a changed text for the same condition at
    most every 5 s. Only one instance may write at a time, because it caches the rows; the closer's
    lease ensures that.
    """

    def __init__(self, database: Database, lease: Lease, clock: Clock, bucket_seconds: int) -> None:
        self._database, self._lease, self._clock = database, lease, clock
        self._written = blockers(database, bucket_seconds)
        self._said_ms = dict.fromkeys(self._written, 0)

    def update(self, now: Blockers) -> None:
        """Store the current blockers, and delete those of event types that are not named.

        Args:
            now: By event type, the hour that waits, the condition and readable details.

        Raises:
            StaleDriver: Another closer has taken over the lease.
        """
        now_ms = self._clock.now_ms()
        gone = sorted(self._written.keys() - now.keys())
        changed = [b for t, said in now.items() if (b := self._changed(t, *said, now_ms))]
        if not gone and not changed:
            return
        put_blockers(self._database, self._lease, changed, gone)
        for t in gone:
            del self._written[t]
        for b in changed:
            self._written[b.event_type], self._said_ms[b.event_type] = b, now_ms

    def _changed(
        self, event_type: str, hour: Hour, phase: ClosingPhase, what: tuple[str, ...], now_ms: int
    ) -> Blocker | None:
        before, since_ms = self._written.get(event_type), now_ms
        if before and (before.hour, before.phase) == (hour, phase):
            if before.what == what or now_ms - self._said_ms[event_type] < REWORD_MS:
                return None
            since_ms = before.since_ms
        return Blocker(event_type=event_type, hour=hour, phase=phase, what=what, since_ms=since_ms)
