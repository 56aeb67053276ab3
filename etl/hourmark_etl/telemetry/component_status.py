"""Status of the ETL driver for `hourmark status` and `hourmark doctor`.

The driver's metrics endpoint is queried first. It usually listens on the driver's machine only. On
other machines, the driver's heartbeats in the ledger determine the status. If a heartbeat seems too
old, the check waits for the next one, because this machine's clock may be wrong.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import time
from collections.abc import Iterator
from typing import Final
from urllib.error import URLError

from hourmark.commands.component_status import LOOPBACK, ComponentState, ComponentStatus, format_age
from hourmark.commands.problems import CauseClass, Problem
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError, UsageError
from hourmark_etl.errors import LostLedger, NoLedger
from hourmark_etl.humanize import format_iso
from hourmark_etl.ledger.database import CLOSER, Database
from hourmark_etl.ledger.engines import sqlite_file
from hourmark_etl.ledger.heartbeat import (
    BEAT_SECONDS,
    NO_SIGNS,
    SILENT_SECONDS,
    DriverSigns,
    last_heartbeat_ms,
    read_driver_signs,
)
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger

TAKEOVERS_MS: Final = 1_800_000
HANGS_MS: Final = 120_000  # the alarm in docs/metrics.md uses the same limit
_ANSWER_S: Final = 3.0
# Three missed heartbeats are enough if the process does not respond either.
_UNRESPONSIVE_S: Final = 10.0
_OBSERVED_S: Final = BEAT_SECONDS + 2.0
_LAST_POLL: Final = re.compile(r"^hourmark_etl_last_poll_timestamp_seconds (\S+)$", re.MULTILINE)
_KEY: Final = "driver"
_SUBJECT: Final = "etl driver"


def driver_status(config: Config, now_ms: int) -> ComponentStatus:
    """Return the status of the ETL driver.

    The driver is the process that copies events from Kafka to storage and closes hourly buckets.
    If the driver or its state database (the ledger) is not available, the error is part of the
    status and is not raised.

    Args:
        config: Configuration that contains the address of the driver's metrics endpoint
            (`etl.metrics_host`, `etl.metrics_port`) and the ledger URL (`etl.ledger`).
        now_ms: Current time, Unix milliseconds.

    Returns:
        - `RUNNING` if the metrics endpoint responds, or if the last heartbeat in the ledger is at
          most 20 seconds old
        - `SILENT` if the driver hangs: its process exists, but its main loop or its heartbeats
          stopped
        - `NOT_RUNNING` if there is no recent heartbeat, or if no driver has ever run
        - `UNKNOWN` if the ledger cannot be read from this machine

        A driver that was shut down cleanly, or never started, is not reported as a problem.
    """
    address = f"{config.etl.metrics_host}:{config.etl.metrics_port}"
    answer = _ask_metrics(address) if config.etl.metrics_port else None
    signs = NO_SIGNS
    try:
        with open_existing_ledger(config) as database:
            signs = read_driver_signs(database)
            known = _read_ledger(database, signs, config, now_ms, answer)
    except LostLedger as error:
        known = ComponentStatus(ComponentState.UNKNOWN, str(error), problems=(_lost(error),))
    except HourmarkError as error:
        # A file that is not here is on the driver's machine, or not made yet. Whether it is lost
        # cannot be told while storage is away, which is a problem of its own.
        file = sqlite_file(config.etl.ledger)
        is_elsewhere = isinstance(error, NoLedger) or (file is not None and not file.is_file())
        problems = () if is_elsewhere else (_away(error),)
        known = ComponentStatus(ComponentState.UNKNOWN, str(error), problems=problems)
    known = dataclasses.replace(
        known, problems=(*_alternating_drivers(signs, now_ms), *known.problems)
    )
    if not answer:
        return known
    return _polled(answer, address, known, signs, config, now_ms)


def _alternating_drivers(signs: DriverSigns, now_ms: int) -> Iterator[Problem]:
    # One takeover is an operator's; each of several ends what the other driver had begun.
    recent = [t for t in signs.takeovers if now_ms - t.at_ms <= TAKEOVERS_MS]
    if len(recent) > 1:
        last = recent[-1]
        yield Problem(
            cause=CauseClass.COMPONENT,
            key="drivers",
            subject="etl drivers",
            what=f"{last.loser} and {last.winner} take the ledger's lease from each other, "
            f"{len(recent)} times in {format_age(recent[0].at_ms, now_ms)}: each aborts the "
            "work of the other",
            do="stop one of the two, and disable its supervisor (`systemctl disable --now "
            "hourmark-etl`)",
            since_ms=recent[0].at_ms,
        )


def _ask_metrics(address: str) -> str | None:
    # The text of the metrics; empty if a process accepts the connection and does not respond; None
    # if no process accepts it.
    try:
        with LOOPBACK.open(f"http://{address}/metrics", timeout=_ANSWER_S) as answer:
            return str(answer.read().decode())
    except TimeoutError:
        return ""
    except URLError as error:
        return "" if isinstance(error.reason, TimeoutError) else None
    except (OSError, ValueError):
        return None


def _polled(
    answer: str,
    address: str,
    known: ComponentStatus,
    signs: DriverSigns,
    config: Config,
    now_ms: int,
) -> ComponentStatus:
    found = _LAST_POLL.search(answer)
    polled_ms = round(float(found[1]) * 1000) if found is not None else 0
    problems = tuple(problem for problem in known.problems if problem.key != _KEY)
    if polled_ms and now_ms - polled_ms <= HANGS_MS and len(problems) < len(known.problems):
        problems = (*problems, _writes_nothing(address, signs, config, now_ms))
    if not polled_ms:
        return ComponentStatus(
            ComponentState.RUNNING,
            f"responds at {address}, but has not polled yet; {known.detail}",
            heard_at_ms=now_ms,
            problems=problems,
        )
    age = format_age(polled_ms, now_ms)
    detail = f"polled {age} ago ({address}); {known.detail}"
    if now_ms - polled_ms <= HANGS_MS:
        return ComponentStatus(
            ComponentState.RUNNING, detail, heard_at_ms=polled_ms, problems=problems
        )
    hangs = _problem(
        f"its main loop has not polled for {age}, so no bucket closes",
        "check the end of its log, which states the last step; if that does not change, end "
        f"{signs.process or 'the process'} and start it again: `hourmark etl run`",
        polled_ms,
    )
    return ComponentStatus(
        ComponentState.SILENT, detail, heard_at_ms=polled_ms, problems=(*problems, hangs)
    )


def _writes_nothing(address: str, signs: DriverSigns, config: Config, now_ms: int) -> Problem:
    # A driver polls, and the heartbeats in the ledger have ended.
    age = format_age(signs.heartbeat_ms or now_ms, now_ms)
    disk, file = "", sqlite_file(config.etl.ledger)
    if file is not None:
        free_mib = shutil.disk_usage(file.parent).free >> 20
        disk = f" ({free_mib} MiB are free; `fuser {file}` shows programs that may lock it)"
    return _problem(
        f"a driver is running ({address}), but none has written to the ledger for {age}, so no "
        "bucket closes",
        f"check that the ledger can be written{disk}; if it can, that driver only stages a "
        f"shard, and the driver that closes buckets is not running: {signs.restart_step}",
        signs.heartbeat_ms or now_ms,
    )


def _read_ledger(
    database: Database, signs: DriverSigns, config: Config, now_ms: int, answer: str | None
) -> ComponentStatus:
    epoch, seen_ms = database.epoch(CLOSER), signs.heartbeat_ms
    if not epoch:
        return ComponentStatus(
            ComponentState.NOT_RUNNING,
            "no driver has ever run with this ledger; start one with `hourmark etl run`",
        )
    if seen_ms is None:
        return ComponentStatus(
            ComponentState.UNKNOWN,
            f"the last driver took its lease at commit {epoch}, but has not written a heartbeat "
            "yet",
        )
    if (goodbye_ms := signs.goodbye_ms) is not None:
        detail = f"it was stopped at {format_iso(goodbye_ms)}; `hourmark etl run` starts it again"
        return ComponentStatus(ComponentState.NOT_RUNNING, detail, heard_at_ms=goodbye_ms)
    age = format_age(seen_ms, now_ms)
    of = f"{signs.process}, " if signs.process else ""
    detail = f"its last heartbeat is {age} old ({of}lease of commit {epoch})"
    allowed_ms = 1000 * (_UNRESPONSIVE_S if answer == "" else SILENT_SECONDS)
    if abs(now_ms - seen_ms) <= allowed_ms:
        return ComponentStatus(ComponentState.RUNNING, detail, heard_at_ms=seen_ms)
    # The driver of an SQLite ledger is on this machine and has the same clock.
    if sqlite_file(config.etl.ledger) is None and _is_beating(database, seen_ms):
        return _of_other_clock(seen_ms, now_ms, detail)
    if answer == "":
        problem = _problem(
            f"it hangs: {signs.process or 'its process'} accepts connections but does not "
            f"respond, and its last heartbeat is {age} old; nothing is staged, and no bucket "
            "closes",
            f"{_continue_or_end(signs)} and start it again: `hourmark etl run`",
            seen_ms,
        )
        return ComponentStatus(
            ComponentState.SILENT, detail, heard_at_ms=seen_ms, problems=(problem,)
        )
    problem = _problem(
        f"no driver is running: the last heartbeat is {age} old; nothing is staged, and no "
        "bucket closes",
        f"{signs.restart_step}; the log of the last driver states why it ended",
        seen_ms,
    )
    return ComponentStatus(
        ComponentState.NOT_RUNNING, detail, heard_at_ms=seen_ms, problems=(problem,)
    )


def _continue_or_end(signs: DriverSigns) -> str:
    cont, kill = (
        "" if signs.pid is None else f": `kill -{name} {signs.pid}`" for name in ("CONT", "KILL")
    )
    return (
        f"if it was suspended, continue it (SIGCONT{cont}); otherwise end it (SIGKILL loses no "
        f"data{kill})"
    )


def _is_beating(database: Database, seen_ms: int) -> bool:
    until_s = time.monotonic() + _OBSERVED_S
    while time.monotonic() < until_s:
        time.sleep(0.5)
        if last_heartbeat_ms(database) != seen_ms:
            return True
    return False


def _of_other_clock(seen_ms: int, now_ms: int, detail: str) -> ComponentStatus:
    apart_s = abs(seen_ms - now_ms) // 1000
    where = "ahead of" if seen_ms > now_ms else "behind"
    problem = Problem(
        cause=CauseClass.CLOCK,
        key="clock:driver",
        subject="clock of the etl driver",
        what=f"it is about {apart_s} s {where} this machine's clock",
        do="synchronize both with NTP (`timedatectl`, `chronyc tracking`), the wrong one first",
    )
    return ComponentStatus(
        ComponentState.RUNNING,
        f"it writes heartbeats, with a clock that is {apart_s} s {where} this machine's; {detail}",
        heard_at_ms=now_ms,
        problems=(problem,),
    )


def _problem(what: str, do: str, since_ms: int) -> Problem:
    return Problem(
        cause=CauseClass.COMPONENT, key=_KEY, subject=_SUBJECT, what=what, do=do, since_ms=since_ms
    )


def _lost(error: HourmarkError) -> Problem:
    return Problem(
        cause=CauseClass.SERVER,
        key="ledger",
        subject="ledger",
        what=str(error),
        do="on the driver's machine: restore its newest copy, or `hourmark ledger rebuild`",
    )


def _away(error: HourmarkError) -> Problem:
    do = (
        "check that the database of etl.ledger is running and accepts this user; then repeat the "
        "command"
    )
    if isinstance(error, UsageError):
        do = "follow the message; `hourmark config show` shows the file of each setting"
    return Problem(cause=CauseClass.SERVER, key="ledger", subject="ledger", what=str(error), do=do)
