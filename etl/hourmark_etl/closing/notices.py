"""When the oldest hour of a back-fill was noticed, which survives a restart of the closer.

A source that delivers an old file is far past the end of that file's hours. The oldest hour to
back-fill therefore waits until each source has caught up with the time of the notice. It is in the
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
    """Sets `noticed_ms` of hours before their type's first hour, while nothing is closed.

    Args:
        database: The ledger (the ETL's state database), which has the notices of earlier closers.
        lease: Lease of the closer.
        clock: Clock of the closer.
    """

    def __init__(self, database: Database, lease: Lease, clock: Clock) -> None:
        self._database, self._lease, self._clock = database, lease, clock
        self._notices = read_backfill_notices(database)

    def apply(self, frontiers: Iterable[Frontier]) -> list[Frontier]:
        """Return the frontiers with the times at which their hours were noticed.

        Hours that were not noticed yet are noticed now. Once an hour of a type is closed, older ones
        are late anyway, so its frontier is returned as it is.

        Args:
            frontiers: Oldest open hour of each type, or of some types.

        Raises:
            StaleDriver: Another process has taken over the lease.
            Unavailable: The ledger does not respond. The next call notices the hours again.
        """
        found, known, now_ms = list(frontiers), dict(self._notices), self._clock.now_ms()
        waiting = [f for f in found if f.hour < f.first_hour and f.previous_hour is None]
        for f in waiting:
            notice = known.get(f.event_type)
            # A clock that has been set back must not delay the hour until it is that late again.
            if notice is None or notice.hour_s != f.hour.start_s or notice.noticed_ms > now_ms:
                known[f.event_type] = BackfillNotice(f.hour.start_s, now_ms)
        if known != self._notices:
            begun = {f.event_type for f in found} - {f.event_type for f in waiting}
            kept = {name: notice for name, notice in known.items() if name not in begun}
            put_backfill_notices(self._database, self._lease, kept)
            self._notices = kept
        noticed_ms = {f.event_type: self._notices[f.event_type].noticed_ms for f in waiting}
        return [
            dataclasses.replace(f, noticed_ms=noticed_ms[f.event_type])
            if f.event_type in noticed_ms
            else f
            for f in found
        ]
