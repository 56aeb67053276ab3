"""`hourmark bucket expire`: removes buckets that are older than the retention of their type.

Without `--execute`, the command changes nothing. It needs storage only.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from typing import Any, Final

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.errors import Finding, UsageError
from hourmark.printing import json_option, name_some, print_json
from hourmark_etl.buckets.expiry import SETTING, ExpiredDay, ExpiryPlan, plan_expiry, remove_day
from hourmark_etl.buckets.reader import NotClosed, list_types
from hourmark_etl.humanize import format_count
from hourmark_etl.operators.buckets.text import format_table
from hourmark_etl.operators.dead_letter_reader import ReadProgress
from hourmark_etl.options import print_lines
from hourmark_etl.storage import Storage, StorageError, open_storage

_COLUMNS: Final = ("type", "retention_days", "date", "buckets", "events", "bytes", "state")
_LEFT: Final = ("type", "date", "state")


@click.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.option("--execute", is_flag=True, help="Remove the listed days. Default: only list them.")
@json_option
@config_option
def expire(event_type: str | None, execute: bool, as_json: bool, config: Config) -> None:
    """Remove the buckets that are older than the retention of their event type.

    The setting etl.retention_days contains the retention of each type in days. Types that are not
    listed there are never removed. Without --execute, the command only lists what it would remove.

    The command removes whole days (UTC), the oldest first. It first writes the markers of all
    buckets of a day to a tombstone, TYPE/_removed/DATE.json. The tombstone is kept, so the chain of
    markers and the grade of each hour can still be verified. Then it deletes the files. If it is
    interrupted, the next run finishes the removal.

    Nothing of a type is removed if a marker is missing or damaged, and the last closed bucket of a
    type is always kept.

    \b
    Examples:
      hourmark bucket expire
      hourmark bucket expire end-song --json
      hourmark bucket expire --execute
    """
    retention = config.etl.retention_days
    if event_type is not None and event_type not in retention:
        raise UsageError(
            f"{event_type} has no retention, so its buckets are kept; set {SETTING}.{event_type} "
            "to a number of days"
        )
    storage, now_ms = open_storage(config.storage), SystemClock().now_ms()
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    try:
        for name in [event_type] if event_type is not None else sorted(retention):
            try:
                plan = plan_expiry(
                    storage, name, retention[name], config.parsing.bucket_seconds, now_ms
                )
                for day, state in _carry_out(storage, plan, now_ms, execute=execute):
                    rows.append(_row(plan, day, state))
            except StorageError:
                raise
            except (Finding, NotClosed) as error:
                problems.append(str(error))
    finally:  # what was removed before an error, too
        if as_json:
            print_json(rows)
        elif rows:
            print_lines(format_table(rows, _COLUMNS, _LEFT))
    _print_summary(storage, config, rows, execute=execute)
    if problems:
        raise Finding("; ".join(problems))


def _carry_out(
    storage: Storage, plan: ExpiryPlan, now_ms: int, *, execute: bool
) -> Iterator[tuple[ExpiredDay, str]]:
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    progress = ReadProgress(
        len(plan.expired),
        lambda text: click.echo(text, err=True),
        f"days of {plan.event_type}",
        "removed",
    )
    for day in plan.expired:
        if execute:
            remove_day(storage, plan, day, now_ms, by)
            progress.count_step()
        yield day, "removed" if execute else "unfinished" if day.is_begun else "expired"


def _row(plan: ExpiryPlan, day: ExpiredDay, state: str) -> dict[str, Any]:
    return {
        "type": plan.event_type,
        "retention_days": plan.days,
        "date": day.date,
        "buckets": len(day.buckets),
        "events": day.events,
        "bytes": day.bytes,
        "state": state,
    }


def _print_summary(
    storage: Storage, config: Config, rows: list[dict[str, Any]], *, execute: bool
) -> None:
    known = list_types(storage)
    kept = [name for name in known if name not in config.etl.retention_days]
    unknown = sorted(config.etl.retention_days.keys() - {*known})
    buckets = format_count(sum(row["buckets"] for row in rows), "bucket")
    days = format_count(len(rows), "day")
    done = f"{buckets} of {days} removed" if execute else f"{buckets} of {days} would be removed"
    more = "" if execute or not rows else "; --execute removes them"
    click.echo(f"{done}{more}", err=True)
    if kept:
        click.echo(
            f"{format_count(len(kept), 'type')} without an entry in {SETTING}: nothing is removed",
            err=True,
        )
    if unknown:
        click.echo(
            f"{SETTING} names types without buckets: {name_some(unknown)}; check their names",
            err=True,
        )
