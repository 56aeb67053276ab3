"""Heartbeats of the driver that closes, so that operators can tell how current the ledger is.

A heartbeat is a row of `meta`, by the driver's clock. It is informational only. A separate thread
writes it, because one poll of the closer may take minutes. Another row names the process and its
host, so that operators find a driver that hangs. A driver that is shut down cleanly writes a third
row, its goodbye; a driver that was killed cannot.

A driver that dies or hangs must be reported within 30 seconds, so the sum of `BEAT_SECONDS` and
`SILENT_SECONDS` is smaller.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import select

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark_etl.errors import EtlStop
from hourmark_etl.humanize import format_duration, format_iso
from hourmark_etl.ledger.database import Database, Lease, replace_rows
from hourmark_etl.ledger.tables import meta

BEAT_SECONDS: Final = 3.0
SILENT_SECONDS: Final = 20.0  # a driver without a sign for so long does not run
_SEEN: Final = "driver_seen_ms"
_GOODBYE: Final = "driver_goodbye_ms"
_PROCESS: Final = "driver_process"  # process id and host name, separated by a space
_TAKEOVERS: Final = "driver_takeovers"  # JSON: time and both processes, of the latest ones
_TAKEOVERS_KEPT: Final = 4
_BEATING_MS: Final = 10_000  # a driver with so young a heartbeat was running


class DriverTakeover(NamedTuple):
    """An event in which a driver took over the lease of another driver that was still running.

    A driver is the process that stages events and closes buckets. Takeovers indicate that two
    drivers were started by mistake.

    Attributes:
        at_ms: Time of the takeover, Unix milliseconds.
        loser: The process that lost the lease, such as `process 4711 on etl-1`.
        winner: The process that took the lease.
    """

    at_ms: int
    loser: str
    winner: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DriverSigns:
    """Information in the ledger about the driver, the process that closes hours.

    Other processes use the heartbeat to determine whether the driver is running. The ledger is the
    state database of the ETL. Times are by the driver's clock.

    Attributes:
        heartbeat_ms: Time of the last heartbeat, Unix milliseconds; None if there was none.
        goodbye_ms: Time of the last clean shutdown, Unix milliseconds; None if a driver has started
            since, or if none has ever shut down cleanly.
        pid: Process id of the driver; None if unknown.
        host: Name of the driver's host; empty if unknown.
        takeovers: The latest takeovers of the lease from a driver that was still running, oldest
            first.
    """

    heartbeat_ms: int | None = None
    goodbye_ms: int | None = None
    pid: int | None = None
    host: str = ""
    takeovers: tuple[DriverTakeover, ...] = ()

    @property
    def process(self) -> str:
        """Return a text such as `process 4711 on etl-1`; empty if the process is unknown."""
        return "" if self.pid is None else _describe_process(self.pid, self.host)

    @property
    def restart_step(self) -> str:
        """Return an instruction for the operator to start a driver that is not running."""
        if self.goodbye_ms is not None:
            return (
                "start it: `hourmark etl run`; alternatively, the next `hourmark run --once` "
                "closes all hours that have ended"
            )
        hangs = ""
        if self.pid is not None:
            hangs = (
                f"on {self.host}: if process {self.pid} exists, it hangs; if it was suspended, "
                "continue it (SIGCONT), otherwise end it (SIGKILL loses no data); then "
            )
        return f"{hangs}start it: `hourmark etl run`"

    def describe_missing(self, now_ms: int) -> str | None:
        """Return a message for the operator if no driver is running.

        A driver is considered stopped if it shut down cleanly, or if its last heartbeat is more
        than 20 seconds old.

        Args:
            now_ms: Current time, Unix milliseconds.

        Returns:
            A readable message; None if the last heartbeat is recent.
        """
        if self.heartbeat_ms is None:
            return (
                "the ledger has no heartbeat of a driver yet; a driver that was just started "
                "writes one when Spark is running, within about a minute"
            )
        if self.goodbye_ms is not None:
            return (
                f"no driver is running: the last one was stopped at {format_iso(self.goodbye_ms)}"
            )
        age_s = (now_ms - self.heartbeat_ms) / 1000
        return (
            f"no driver is running: the last heartbeat in the ledger is {format_duration(age_s)} "
            "old"
            if age_s > SILENT_SECONDS
            else None
        )


NO_SIGNS: Final = DriverSigns()


def _describe_process(pid: int, host: str) -> str:
    return f"process {pid} on {host}"


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
                _write(self._database, self._lease, {_GOODBYE: str(self._clock.now_ms())})

    def _run(self) -> None:
        is_first = True
        while not self._stopping.is_set():
            try:
                if is_first:
                    record_takeover(self._database, self._lease, self._clock.now_ms())
                write_heartbeat(self._database, self._lease, self._clock.now_ms())
                is_first = False
            except Unavailable:
                pass  # the driver's loop gets the same error and reports it
            except EtlStop:
                return  # reported by the driver's loop as well
            self._stopping.wait(BEAT_SECONDS)


def write_heartbeat(database: Database, lease: Lease, now_ms: int) -> None:
    """Store the current time as the driver's last heartbeat, with its process id and host name.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        now_ms: Current time, Unix milliseconds.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
        Unavailable: The database does not respond.
    """
    process = f"{os.getpid()} {socket.gethostname()}"
    _write(database, lease, {_SEEN: str(now_ms), _PROCESS: process})


def record_takeover(database: Database, lease: Lease, now_ms: int) -> None:
    """Record that this driver has taken the lease from another driver that was still running.

    The other driver counts as running if its last heartbeat is at most 10 seconds old, unless it
    was shut down or its process no longer exists on this host. If it was not running, nothing is
    recorded. Call this function before the first heartbeat.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        now_ms: Current time, Unix milliseconds.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
        Unavailable: The database does not respond.
    """
    # Two drivers that a supervisor starts again take the lease from each other, and each looks
    # healthy while it has it: only these records reveal them.
    before, here = read_driver_signs(database), socket.gethostname()
    own = _describe_process(os.getpid(), here)
    was_running = (
        before.heartbeat_ms is not None
        and before.goodbye_ms is None
        and abs(now_ms - before.heartbeat_ms) <= _BEATING_MS
    )
    # One that was killed a moment ago, on this machine, is gone.
    is_gone = before.host == here and not Path(f"/proc/{before.pid}").exists()
    if was_running and not is_gone and before.process not in ("", own):
        takeovers = (*before.takeovers, DriverTakeover(now_ms, before.process, own))
        _write(database, lease, {_TAKEOVERS: json.dumps(takeovers[-_TAKEOVERS_KEPT:])})


def _write(database: Database, lease: Lease, values: Mapping[str, str]) -> None:
    with database.transaction(lease) as connection:
        rows = [{"key": key, "value": value} for key, value in values.items()]
        replace_rows(connection, meta, ["key"], rows)


def read_driver_signs(database: Database) -> DriverSigns:
    """Return the heartbeat, the last shutdown and the process of the driver that closes hours.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        The stored values; equal to `NO_SIGNS` if no driver has ever written a heartbeat.
    """
    keys = (_SEEN, _GOODBYE, _PROCESS, _TAKEOVERS)
    query = select(meta.c.key, meta.c.value).where(meta.c.key.in_(keys))
    found = {row.key: row.value for row in database.fetch(query)}
    seen_ms, goodbye_ms = (int(found[key]) if key in found else None for key in keys[:2])
    pid, _, host = found.get(_PROCESS, "").partition(" ")
    return DriverSigns(
        heartbeat_ms=seen_ms,
        goodbye_ms=goodbye_ms if goodbye_ms is not None and goodbye_ms >= (seen_ms or 0) else None,
        pid=int(pid) if pid else None,
        host=host,
        takeovers=tuple(DriverTakeover(*each) for each in json.loads(found.get(_TAKEOVERS, "[]"))),
    )


def last_heartbeat_ms(database: Database) -> int | None:
    """Return the time of the driver's last heartbeat.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Unix milliseconds by the driver's clock; None if no driver has ever written a heartbeat.
    """
    return read_driver_signs(database).heartbeat_ms
