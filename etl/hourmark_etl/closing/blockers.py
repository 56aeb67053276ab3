"""Keeps the ledger's table `blockers` up to date: a few writes, however many polls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hourmark.clock import Clock
from hourmark.hours import Hour
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.overrides import Blocker, blockers, put_blockers
from hourmark_etl.model import Phase

REWORD_MS: Final = 5_000  # how often the same wait is said in other words (an offset further on)
Blockers = Mapping[str, tuple[Hour, Phase, tuple[str, ...]]]  # by type: hour, phase, what


class BlockersKeeper:
    """Remembers what it wrote."""

    def __init__(self, database: Database, lease: Lease, clock: Clock, bucket_seconds: int) -> None:
        self._database, self._lease, self._clock = database, lease, clock
        self._written = blockers(database, bucket_seconds)
        self._said_ms = dict.fromkeys(self._written, 0)

    def say(self, now: Blockers) -> None:
        """Every type that waits for more than time; all others wait no longer."""
        now_ms = self._clock.now_ms()
        gone = sorted(set(self._written) - set(now))
        changed = [w for t, said in now.items() if (w := self._changed(t, *said, now_ms)) is not None]
        if not gone and not changed:
            return
        put_blockers(self._database, self._lease, changed, gone)
        for t in gone:
            del self._written[t]
        for w in changed:
            self._written[w.event_type] = w
            self._said_ms[w.event_type] = now_ms

    def _changed(self, event_type: str, hour: Hour, phase: Phase, what: tuple[str, ...], now_ms: int) -> Blocker | None:
        before = self._written.get(event_type)
        if before is None or (before.hour, before.phase) != (hour, phase):
            return Blocker(event_type=event_type, hour=hour, phase=phase, what=what, since_ms=now_ms)
        if before.what != what and now_ms - self._said_ms[event_type] >= REWORD_MS:
            return Blocker(event_type=event_type, hour=hour, phase=phase, what=what, since_ms=before.since_ms)
        return None
