"""`hourmark etl set-aside`: lists records that cannot be in a bucket; marks them as reviewed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.log import set_up_logging
from hourmark.printing import json_option, print_json
from hourmark.records.hours import Hour
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.ledger.staged.set_aside import SetAsideRow, mark_reviewed, set_aside_rows
from hourmark_etl.options import print_lines

_OFFSETS_SHOWN: Final = 5
_OPTIONAL_TYPE: Final = click.argument("event_type", metavar="[TYPE]", required=False)


@click.group("set-aside")
def set_aside() -> None:
    """List or review malformed records in event topics, which cannot be stored in a bucket.

    A record is malformed if a program other than a delivery service wrote it, or if its bytes have
    changed. Malformed records are set aside and counted in the marker of the type's next bucket.
    All other records are processed as usual. If a malformed record was an acknowledged event, the
    event is missing in its bucket, which is therefore not closed as `proved`.
    """


@set_aside.command("ls")
@_OPTIONAL_TYPE
@click.option(
    "--all", "is_all", is_flag=True, help="Also list records that are marked as reviewed."
)
@json_option
@config_option
def ls(event_type: str | None, is_all: bool, as_json: bool, config: Config) -> None:
    """List the malformed records of TYPE, or of all types, with the reason for each.

    Records that an operator has marked as reviewed are listed only with --all.

    \b
    Example:
      hourmark etl set-aside ls click
    """
    set_up_logging(config.log_level)
    with open_existing_ledger(config) as database:
        rows = set_aside_rows(database, event_type, reviewed=None if is_all else False)
    if as_json:
        print_json({"set_aside": [_json(row, config.parsing.bucket_seconds) for row in rows]})
    else:
        print_lines(_printed(rows, config.parsing.bucket_seconds))


@set_aside.command("review")
@_OPTIONAL_TYPE
@click.option(
    "--all", "is_all", is_flag=True, help="Mark the records of all types, instead of TYPE."
)
@config_option
def review(event_type: str | None, is_all: bool, config: Config) -> None:
    """Mark all malformed records of TYPE as reviewed.

    Reviewed records are no longer counted by `hourmark bucket why` and by the metric
    hourmark_etl_records_set_aside.

    \b
    Example:
      hourmark etl set-aside review click
    """
    if (event_type is None) != is_all:
        raise click.UsageError("specify TYPE or --all")
    set_up_logging(config.log_level)
    with open_existing_ledger(config) as database:
        count = mark_reviewed(database, event_type, SystemClock().now_ms())
    click.echo(f"{count} records of {event_type or 'all types'} are marked as reviewed")


def _printed(rows: Sequence[SetAsideRow], bucket_seconds: int) -> Iterator[str]:
    for row in rows:
        of = row.set_aside
        found_at = dt.datetime.fromtimestamp(row.found_at_ms / 1000, dt.UTC)
        shown = ", ".join(map(str, of.offsets[:_OFFSETS_SHOWN]))
        more = (
            f" and {row.record_count - _OFFSETS_SHOWN} more"
            if row.record_count > _OFFSETS_SHOWN
            else ""
        )
        bucket = (
            f"bucket {Hour(row.listed_hour, bucket_seconds)}"
            if row.listed_hour is not None
            else "the next bucket"
        )
        yield (
            f"{of.event_type}  {of.topic} partition {of.partition} offsets {shown}{more}: "
            f"{of.reason}"
        )
        yield f"  {row.record_count} records, found {found_at:%Y-%m-%dT%H:%M:%SZ}, counted by {bucket}"
    total = sum(row.record_count for row in rows)
    yield f"{total} records were set aside" + (
        "; `hourmark etl set-aside review TYPE` marks them as reviewed" if total else ""
    )


def _json(row: SetAsideRow, bucket_seconds: int) -> dict[str, Any]:
    return {
        "type": row.set_aside.event_type,
        "topic": row.set_aside.topic,
        "partition": row.set_aside.partition,
        "offsets": list(row.set_aside.offsets),
        "records": row.record_count,
        "reason": row.set_aside.reason,
        "found_at_ms": row.found_at_ms,
        "bucket": None if row.listed_hour is None else str(Hour(row.listed_hour, bucket_seconds)),
        "reviewed_at_ms": row.reviewed_at_ms,
    }
