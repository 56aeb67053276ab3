"""Keeps the ledger's table `waits` up to date: a few writes, however many looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from etl.ledger.database import Database, Lease
from etl.ledger.orders import Wait, put_waits, waits
from hourmark.clock import Clock
from hourmark.hours import Hour

REWORD_MS: Final = 5_000  # how often the same wait is said in other words (an offset further on)
Waits = Mapping[str, tuple[Hour, str, tuple[str, ...]]]  # by type: hour, phase, what


class WaitsKeeper:
    """Remembers what it wrote."""

    def __init__(self, database: Database, lease: Lease, clock: Clock, bucket_seconds: int) -> None:
        self._database, self._lease, self._clock = database, lease, clock
        self._written = waits(database, bucket_seconds)
        self._said_ms = dict.fromkeys(self._written, 0)

    def say(self, now: Waits) -> None:
        """Every type that waits for more than time; all others wait no longer."""
        now_ms = self._clock.now_ms()
        gone = sorted(set(self._written) - set(now))
        changed = [w for t, said in now.items() if (w := self._changed(t, *said, now_ms)) is not None]
        if not gone and not changed:
            return
        put_waits(self._database, self._lease, changed, gone)
        for t in gone:
            del self._written[t]
        for w in changed:
            self._written[w.event_type] = w
            self._said_ms[w.event_type] = now_ms

    def _changed(self, event_type: str, hour: Hour, phase: str, what: tuple[str, ...], now_ms: int) -> Wait | None:
        before = self._written.get(event_type)
        if before is None or (before.hour, before.phase) != (hour, phase):
            return Wait(event_type, hour, phase, what, now_ms)
        if before.what != what and now_ms - self._said_ms[event_type] >= REWORD_MS:
            return Wait(event_type, hour, phase, what, before.since_ms)
        return None
