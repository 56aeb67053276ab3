"""Heartbeats of the driver that closes, so that operators can tell how current the ledger is.

A heartbeat is a row of `meta`, by the driver's clock. It is informational only. A separate thread
writes it, because one poll of the closer may take minutes. A driver that is shut down cleanly
writes a second row, its goodbye; a driver that was killed cannot.

A driver that dies or hangs must be reported within 30 seconds, so the sum of `BEAT_SECONDS` and
`SILENT_SECONDS` is smaller.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Final

from sqlalchemy import select

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark_etl.errors import EtlStop
from hourmark_etl.humanize import format_duration
from hourmark_etl.ledger.database import Database, Lease, replace_rows
from hourmark_etl.ledger.tables import meta

BEAT_SECONDS: Final = 3.0
SILENT_SECONDS: Final = 20.0  # a driver without a sign for so long does not run
_SEEN: Final = "driver_seen_ms"
_GOODBYE: Final = "driver_goodbye_ms"


class Heartbeat:
    """A background thread that writes the current time to the ledger every 3 seconds.

    The heartbeat shows other processes that the driver is running. The thread ends when `stop` is
    called, when another process takes over the lease, or when the ledger is damaged. If the
    database does not respond, the thread continues with the next heartbeat.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, under which heartbeats are written.
        clock: Source of the current time.
    """

    def __init__(self, database: Database, lease: Lease, clock: Clock) -> None:
        self._database, self._lease, self._clock = database, lease, clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread, which writes the first heartbeat immediately.

        Call this method once.
        """
        self._thread.start()

    def stop(self, *, goodbye: bool = False) -> None:
        """Stop the thread and wait until it has ended.

        No heartbeat is written afterwards.

        Args:
            goodbye: Whether this is a clean shutdown of the driver. If so, its time is stored,
                unless the database does not respond or the lease was taken over.
        """
        self._stopping.set()
        self._thread.join()
        if goodbye:
            with contextlib.suppress(Unavailable, EtlStop):
                _write(self._database, self._lease, _GOODBYE, self._clock.now_ms())

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                write_heartbeat(self._database, self._lease, self._clock.now_ms())
            except Unavailable:
                pass  # the driver's loop gets the same error and reports it
            except EtlStop:
                return  # reported by the driver's loop as well
            self._stopping.wait(BEAT_SECONDS)


def write_heartbeat(database: Database, lease: Lease, now_ms: int) -> None:
    """Store the current time as the driver's last heartbeat.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        now_ms: Current time, Unix milliseconds.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
        Unavailable: The database does not respond.
    """
    _write(database, lease, _SEEN, now_ms)


def _write(database: Database, lease: Lease, key: str, now_ms: int) -> None:
    with database.transaction(lease) as connection:
        replace_rows(connection, meta, ["key"], [{"key": key, "value": str(now_ms)}])


def last_heartbeat_ms(database: Database) -> int | None:
    """Return the time of the driver's last heartbeat.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Unix milliseconds by the driver's clock; None if no driver has ever written a heartbeat.
    """
    return _read(database, _SEEN)


def last_goodbye_ms(database: Database) -> int | None:
    """Return the time of the last clean shutdown of a driver.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Unix milliseconds by the driver's clock; None if a driver has started since, or if no driver
        has ever shut down cleanly.
    """
    goodbye_ms, seen_ms = _read(database, _GOODBYE), _read(database, _SEEN)
    return goodbye_ms if goodbye_ms is not None and goodbye_ms >= (seen_ms or 0) else None


def _read(database: Database, key: str) -> int | None:
    found = database.fetch(select(meta.c.value).where(meta.c.key == key)).scalar()
    return None if found is None else int(found)


def describe_missing_driver(heartbeat_ms: int | None, now_ms: int) -> str | None:
    """Return a message for the operator if no driver is running.

    A driver is considered stopped if its last heartbeat is more than 20 seconds old.

    Args:
        heartbeat_ms: Time of the last heartbeat, Unix milliseconds; None if there was none.
        now_ms: Current time, Unix milliseconds.

    Returns:
        A readable message; None if the last heartbeat is recent.
    """
    if heartbeat_ms is None:
        return (
            "the ledger has no sign of a driver yet; one that was just started gives it once "
            "Spark is up, in a minute"
        )
    age_s = (now_ms - heartbeat_ms) / 1000
    return (
        f"no driver runs: its last sign in the ledger is {format_duration(age_s)} old"
        if age_s > SILENT_SECONDS
        else None
    )
