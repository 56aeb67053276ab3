"""Stores when the closer detected the oldest hour of a back-fill, so that a restart keeps the time.

A source that delivers an old file is far past the end of that file's hours. The oldest hour to
back-fill therefore waits until each source has caught up with the time of detection. It is in the
ledger: a closer that is started again would otherwise begin to wait anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from hourmark.clock import Clock
from hourmark_etl.ledger.backfill import (
    BackfillNotice,
    put_backfill_notices,
    read_backfill_notices,
)
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.model import Frontier


class BackfillNotices:
    """Records when the closer first detected the oldest hour of a back-fill.

    A back-fill creates buckets for hours before the first hour of an event type. The oldest of
    these hours is closed only after every log source has caught up with the recorded time, so that
    old files that are still being delivered are complete. The times are stored in the ledger, so
    they survive a restart.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        clock: Clock of the closer.
    """

    def __init__(self, database: Database, lease: Lease, clock: Clock) -> None:
        self._database, self._lease, self._clock = database, lease, clock
        self._notices = read_backfill_notices(database)

    def apply(self, frontiers: Iterable[Frontier]) -> list[Frontier]:
        """Set `noticed_ms` of frontiers in a back-fill; return all frontiers.

        An oldest hour that was not detected before gets the current time, which is stored in the
        ledger. The later hours of the back-fill get the same time, so that each of them waits for
        its missing events until the same deadline. The frontiers of types without a back-fill are
        returned unchanged, and so are those whose oldest bucket was closed without a stored time.

        Args:
            frontiers: The next hour to close of each type, or of some types.

        Returns:
            The frontiers in the given order.

        Raises:
            StaleDriver: Another process has taken over the lease.
            Unavailable: The ledger does not respond. New times were not stored.
        """
        found, known, now_ms = list(frontiers), dict(self._notices), self._clock.now_ms()
        old = [f for f in found if f.hour < f.first_hour]
        for f in old:
            notice = known.get(f.event_type)
            is_new = f.previous_hour is None and (notice is None or notice.hour_s != f.hour.start_s)
            # A clock that has been set back must not delay the hour until it is that late again.
            if is_new or (notice is not None and notice.noticed_ms > now_ms):
                known[f.event_type] = BackfillNotice(f.hour.start_s, now_ms)
        if known != self._notices:
            ended = {f.event_type for f in found} - {f.event_type for f in old}
            kept = {name: notice for name, notice in known.items() if name not in ended}
            put_backfill_notices(self._database, self._lease, kept)
            self._notices = kept
        noticed_ms = {
            f.event_type: self._notices[f.event_type].noticed_ms
            for f in old
            if f.event_type in self._notices
        }
        return [
            dataclasses.replace(f, noticed_ms=noticed_ms[f.event_type])
            if f.event_type in noticed_ms
            else f
            for f in found
        ]
