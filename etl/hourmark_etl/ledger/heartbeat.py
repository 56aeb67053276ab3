"""Signs of life of the driver that closes: without one, what the ledger says of hosts and hours is
as old as the last.

For operators only: nothing is decided by it. It is a row of `meta`, by the driver's clock, and a
thread of its own writes it, as one poll of the closer may take minutes.
"""

from __future__ import annotations

import threading
from typing import Final

from sqlalchemy import select

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark_etl.errors import EtlStop
from hourmark_etl.humanize import format_duration
from hourmark_etl.ledger.database import Database, Lease, put
from hourmark_etl.ledger.tables import meta

BEAT_SECONDS: Final = 15.0
SILENT_SECONDS: Final = 60.0  # a driver without a sign for so long does not run
_KEY: Final = "driver_seen_ms"


class Heartbeat:
    """Writes a sign every `BEAT_SECONDS` until it is stopped, or the lease was taken over."""

    def __init__(self, database: Database, lease: Lease, clock: Clock) -> None:
        self._database, self._lease, self._clock = database, lease, clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """The first sign is written at once."""
        self._thread.start()

    def stop(self) -> None:
        """Return once nothing more is written."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                beat(self._database, self._lease, self._clock.now_ms())
            except Unavailable:
                pass  # the driver's loop meets it too, and says so
            except EtlStop:
                return  # so does that
            self._stopping.wait(BEAT_SECONDS)


def beat(database: Database, lease: Lease, now_ms: int) -> None:
    """One sign. StaleDriver if the lease was taken over."""
    with database.transaction(lease) as connection:
        put(connection, meta, ["key"], [{"key": _KEY, "value": str(now_ms)}])


def driver_seen_ms(database: Database) -> int | None:
    """When the last sign was given, Unix milliseconds by the driver's clock; None: never."""
    found = database.ask(select(meta.c.value).where(meta.c.key == _KEY)).scalar()
    return None if found is None else int(found)


def no_driver(seen_ms: int | None, now_ms: int) -> str | None:
    """That none runs, human-readable; None where one gave a sign a moment ago."""
    if seen_ms is None:
        return (
            "the ledger has no sign of a driver yet; one that was just started gives it once "
            "Spark is up, in a minute"
        )
    age_s = (now_ms - seen_ms) / 1000
    return (
        f"no driver runs: its last sign in the ledger is {format_duration(age_s)} old"
        if age_s > SILENT_SECONDS
        else None
    )
