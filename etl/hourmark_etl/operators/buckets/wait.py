"""`hourmark bucket wait`: blocks until a bucket is closed, or until a timeout.

A poll reads at most four ledger rows by key, regardless of the number of types and buckets. The
interval between polls is one second. What the bucket waits for is printed to stderr at least every
15 seconds. While the ledger does not exist or does not respond, the command keeps polling: a script
may start it before `hourmark types apply` has created the ledger, and servers restart. If the
bucket will never exist, the command ends immediately.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, Final

import click

from hourmark.clock import Clock, SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.config.redaction import redact
from hourmark.errors import Unavailable
from hourmark.printing import json_option, print_json
from hourmark.records.hours import Hour
from hourmark_etl.errors import DamagedRow, NoLedger
from hourmark_etl.humanize import format_duration
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import read_type_names
from hourmark_etl.ledger.heartbeat import read_driver_signs
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.ledger.overrides import blockers
from hourmark_etl.model import Frontier, HourState
from hourmark_etl.operators.buckets.exits import EXIT_CODES, BucketExit, exit_of_explanation
from hourmark_etl.operators.buckets.listing import make_row, manifest_row, open_bucket_row
from hourmark_etl.operators.explain import (
    Explanation,
    HourFacts,
    explain_hour,
    format_explanation,
    format_hours_before,
)
from hourmark_etl.operators.hour_facts import (
    note_removal,
    read_frontier,
    read_hour_facts,
    read_manifests,
)
from hourmark_etl.options import hour_argument, parse_hour, print_lines, type_argument

POLL_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0  # while the ledger does not exist or does not respond
REPORT_SECONDS: Final = 5.0  # and a poll may take 10 s, after which a connection is given up
_WAITS_MAX: Final = 500  # characters of a report


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketPoll:
    """The state of a bucket at the time of one poll.

    Attributes:
        exit_code: Exit code for the state; `OPEN` if the bucket is not closed yet, `ERROR` if the
            ledger cannot be read.
        waits_for: Human-readable text about what an open bucket waits for, or why the ledger cannot
            be read; empty for any other state.
        row: Table row of the bucket, as in `hourmark bucket ls --json`; None if the ledger cannot
            be read. Its `state` may also be `later`, `skipped`, `before-first` or `unknown-type`.
        error: Error that prevented reading the ledger (the ETL's state database); None if it was
            read.
    """

    exit_code: BucketExit
    waits_for: str = ""
    row: dict[str, Any] | None = None
    error: Unavailable | None = None

    @property
    def is_final(self) -> bool:
        """Return whether waiting longer would not change the state."""
        return self.error is None and self.exit_code is not BucketExit.OPEN


class BucketPoller:
    """Reads the state of one bucket repeatedly, through one connection to the ledger.

    If the ledger (the ETL's state database) does not respond, the next poll reconnects to it.
    """

    def __init__(self, config: Config, event_type: str, hour: Hour) -> None:
        """Create a poller; the ledger is opened by the first poll.

        Args:
            config: Configuration with the ledger and the storage root.
            event_type: Name of the event type.
            hour: Hour of the bucket.
        """
        self._config, self._event_type, self._hour = config, event_type, hour
        self._database: Database | None = None

    def close(self) -> None:
        """Close the connection to the ledger, if there is one."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def poll(self, now_ms: int) -> BucketPoll:
        """Return the current state of the bucket.

        Args:
            now_ms: Current time, Unix milliseconds.

        Returns:
            The state; `error` is set if the ledger (the ETL's state database) does not exist or
            does not respond.

        Raises:
            EtlStop: The ledger's database is damaged.
        """
        try:
            return self._read(self._open(), now_ms)
        except Unavailable as error:
            self.close()
            return BucketPoll(exit_code=BucketExit.ERROR, waits_for=redact(str(error)), error=error)

    def explain(self, now_ms: int) -> Explanation:
        """Return the explanation that `hourmark bucket why` prints.

        Unlike a poll, it reads the reports of all hosts.

        Args:
            now_ms: Current time, Unix milliseconds.

        Returns:
            The state of the bucket, with the reasons if it is not closed.

        Raises:
            Unavailable: The ledger (the ETL's state database) does not exist or does not respond.
        """
        explanation = explain_hour(
            read_hour_facts(self._open(), self._config, self._event_type, self._hour, now_ms)
        )
        return note_removal(self._config, explanation, self._hour, now_ms)

    def _open(self) -> Database:
        if self._database is None:
            self._database = open_existing_ledger(self._config)
        return self._database

    def _read(self, database: Database, now_ms: int) -> BucketPoll:
        frontier = read_frontier(database, self._event_type, self._hour.length_s)
        if frontier is None and not read_type_names(database, limit=1):
            raise NoLedger(
                "the ledger has no event types yet; `hourmark types apply --dir types` declares them"
            )
        if frontier is not None and frontier.state is HourState.DAMAGED:
            raise DamagedRow("frontiers", f"type {self._event_type!r}", self._event_type)
        if frontier is not None and self._hour >= frontier.hour:
            return self._read_open(database, frontier, now_ms)
        manifest, following = read_manifests(database, frontier, self._event_type, self._hour)
        explanation = explain_hour(
            HourFacts(
                event_type=self._event_type,
                hour=self._hour,
                now_ms=now_ms,
                deadline_seconds=self._config.etl.deadline_seconds,
                frontier=frontier,
                manifest=manifest,
                following=following,
            )
        )
        explanation = note_removal(self._config, explanation, self._hour, now_ms)
        row = (
            make_row(self._event_type, self._hour, explanation.state, grade=explanation.grade)
            if manifest is None
            else manifest_row(self._event_type, self._hour, manifest) | {"state": explanation.state}
        )
        exit_code = exit_of_explanation(explanation)
        waits_for = explanation.summary if exit_code is BucketExit.OPEN else ""
        return BucketPoll(exit_code=exit_code, row=row, waits_for=waits_for)

    def _read_open(self, database: Database, frontier: Frontier, now_ms: int) -> BucketPoll:
        found = blockers(database, self._hour.length_s, [self._event_type])
        silent = read_driver_signs(database).describe_missing(now_ms)
        blocker = found.get(self._event_type)
        row = open_bucket_row(frontier, blocker, silent, now_ms, _WAITS_MAX)
        text = str(row["waits_for"])
        if self._hour > frontier.hour:
            before = format_hours_before(frontier, self._hour, "earlier hour")
            text = f"{before}, first {frontier.hour}, which waits for: {text}"
            overdue_s = round(max(0.0, (now_ms - self._hour.end_ms) / 1000), 1)
            own = {"hour": str(self._hour), "state": "later", "overdue_s": overdue_s}
            row |= {**own, "waits_for": text}
        return BucketPoll(exit_code=BucketExit.OPEN, waits_for=text, row=row)


def wait_for_bucket(
    poll: Callable[[int], BucketPoll],
    clock: Clock,
    timeout_s: float,
    report: Callable[[BucketPoll, float], None],
) -> BucketPoll:
    """Poll a bucket until its state is final, or until a timeout.

    Args:
        poll: Returns the state of the bucket at a time in Unix milliseconds.
        clock: Clock of the timeout and of the pauses.
        timeout_s: Time limit in seconds; with 0 the bucket is polled once.
        report: Function that is called with the state and the elapsed seconds while the state is
            not final: after the first poll, and then about every 5 seconds.

    Returns:
        The last state; `is_final` is False after a timeout.
    """
    began_s = clock.monotonic_s()
    report_s = 0.0  # elapsed time at which the next report is due
    while True:
        found = poll(clock.now_ms())
        elapsed_s = clock.monotonic_s() - began_s
        if found.is_final or elapsed_s >= timeout_s:
            return found
        if elapsed_s >= report_s:
            report(found, elapsed_s)
            report_s = elapsed_s + REPORT_SECONDS
        pause_s = POLL_SECONDS if found.error is None else RETRY_SECONDS
        clock.sleep(min(pause_s, timeout_s - elapsed_s, report_s - elapsed_s))


@click.command(epilog=EXIT_CODES)
@type_argument
@hour_argument
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=3600,
    show_default=True,
    help="Maximum time to wait; with 0, the bucket is checked once.",
)
@json_option
@config_option
def wait(event_type: str, hour: str, timeout_s: float, as_json: bool, config: Config) -> None:
    """Wait until a bucket is closed. The exit code shows its grade; see the table below.

    At least every 15 seconds, the command prints to stderr what the bucket waits for. At the end, it
    prints the output of `hourmark bucket why` to stdout. With --json, it instead prints the row of
    the bucket as in `hourmark bucket ls --json`.

    If the bucket is still open at the timeout, the exit code is 3. The command also waits while the
    ledger does not exist or does not respond. If this is still the case at the timeout, the exit
    code is 1.

    \b
    Examples:
      hourmark bucket wait end-song 2026-11-21T06 --timeout 600
      hourmark bucket wait end-song 2026-11-21T06 --timeout 600 --json
    """
    clock = SystemClock()
    poller = BucketPoller(config, event_type, parse_hour(hour, config))

    def report(found: BucketPoll, elapsed_s: float) -> None:
        click.echo(
            f"{event_type} {hour}: not closed after {format_duration(elapsed_s)} of "
            f"{format_duration(timeout_s)}; waits for: {found.waits_for}",
            err=True,
        )

    with contextlib.closing(poller):
        found = wait_for_bucket(poller.poll, clock, timeout_s, report)
        if found.error is not None:
            raise found.error
        exit_code = found.exit_code
        if as_json:
            print_json(found.row)
        else:
            explanation = poller.explain(clock.now_ms())
            print_lines(format_explanation(explanation, clock.now_ms()))
            exit_code = exit_of_explanation(explanation)
    click.get_current_context().exit(exit_code)
