"""`hourmark bucket`: lists, shows, verifies and prints buckets, and explains why an hour waits.

`show`, `verify` and `cat` need storage only, so they work while Kafka, the ledger and the ETL are
down. `ls` does too, and adds the hours that close next if the ledger can be read. `why` and `force`
(override.py) need the ledger. Results go to stdout; the exit code is 1 if there are findings.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, Final

import click
from pydantic_core import from_json

from hourmark.config.loading import Config, config_option
from hourmark.errors import Finding
from hourmark.printing import json_option, print_json
from hourmark.records.hours import Hour
from hourmark_etl.buckets.reader import (
    BadMarker,
    NotClosed,
    list_hours,
    list_types,
    read_events,
    read_manifest,
)
from hourmark_etl.ledger.bucket_rows import BucketRow, bucket_rows, make_damaged_bucket_error
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.operators.bucket_text import (
    format_bucket_report,
    format_events,
    format_manifest,
    format_table,
    format_verification_summary,
)
from hourmark_etl.operators.override import force, next_bucket_rows, why
from hourmark_etl.options import hour_argument, parse_hour, print_lines, type_argument
from hourmark_etl.storage import Storage, open_storage

_COLUMNS: Final = (
    "type",
    "hour",
    "grade",
    "events",
    "late",
    "duplicates_removed",
    "unaudited",
    "bytes",
    "closed_after_s",
    "waits_for",
)
_NOTHING_KNOWN: Final = dict.fromkeys(_COLUMNS)
_LEFT: Final = ("type", "hour", "grade", "waits_for")


@click.group()
def bucket() -> None:
    """List, show, verify and print hourly buckets; explain why one is not closed, or force it.

    HOUR is in UTC: 2026-11-21T05, or 2026-11-21T05:07 if a bucket is shorter than an hour.

    \b
    Examples:
      hourmark bucket ls
      hourmark bucket show end-song 2026-11-21T05
      hourmark bucket verify
      hourmark bucket cat end-song 2026-11-21T05 --limit 3 --json
      hourmark bucket why end-song 2026-11-21T06
      hourmark bucket force end-song 2026-11-21T06 --reason "edge topic lost, ticket 17"
    """


bucket.add_command(why)
bucket.add_command(force)


@bucket.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.option(
    "--from", "from_hour", metavar="HOUR", help="First hour; asks the ledger, and reads no marker."
)
@click.option("--to", "to_hour", metavar="HOUR", help="Last hour; likewise.")
@json_option
@config_option
def ls(
    event_type: str | None,
    from_hour: str | None,
    to_hour: str | None,
    as_json: bool,
    config: Config,
) -> None:
    """List the closed buckets of TYPE or of all types, and the next hour of each type to close.

    The next hour to close is shown if the ledger can be read. Its state is shown as its grade: open,
    frozen (being proved) or sealed (being written). With --from or --to, only closed buckets of these
    hours are listed, from the ledger, which is fast even for several years of buckets.

    \b
    Examples:
      hourmark bucket ls
      hourmark bucket ls end-song --json
      hourmark bucket ls --from 2026-11-21T00 --to 2026-11-21T23
    """
    if from_hour or to_hour:
        _show_rows(
            closed_bucket_rows(config, event_type, from_hour, to_hour),
            as_json,
            "the ledger knows no closed bucket of these hours",
        )
        return
    storage = open_storage(config.storage)
    opened = [{**dict.fromkeys(_COLUMNS), **row} for row in next_bucket_rows(config, event_type)]
    names = _types(storage, event_type) if event_type is None or not opened else [event_type]
    rows = [
        _row(storage, name, hour)
        for name in names
        for hour in list_hours(storage, name, config.parsing.bucket_seconds)
    ]
    rows = sorted([*rows, *opened], key=lambda row: (row["type"], row["hour"]))
    _show_rows(rows, as_json, f"no bucket is closed below {storage.url('')} yet")


@bucket.command()
@type_argument
@hour_argument
@json_option
@config_option
def show(event_type: str, hour: str, as_json: bool, config: Config) -> None:
    """Show the manifest of a bucket: grade, evidence, files, late events and offsets.

    \b
    Example:
      hourmark bucket show end-song 2026-11-21T05
    """
    storage = open_storage(config.storage)
    parsed = parse_hour(hour, config)
    manifest = read_manifest(storage, event_type, parsed)
    click.echo(
        manifest.encode().decode() if as_json else format_manifest(storage, parsed, manifest)
    )


@bucket.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.argument("hour", metavar="[HOUR]", required=False)
@json_option
@config_option
def verify(event_type: str | None, hour: str | None, as_json: bool, config: Config) -> None:
    """Read closed buckets completely and report every difference from their manifests.

    The exit code is 1 if there are findings. The following is checked:

    \b
    - the marker is valid and refers to the marker of the previous bucket
    - the bucket has exactly the listed files, with their sizes, digests, counts and schemas
    - each event id occurs once, and the sum of the ids is correct
    - events have the hours that the manifest states, and each late event is in one bucket only
    - without HOUR: no hour is missing

    \b
    Examples:
      hourmark bucket verify
      hourmark bucket verify end-song
      hourmark bucket verify end-song 2026-11-21T05
    """
    from hourmark_etl.buckets.verify import (  # loads numpy
        BucketFinding,
        BucketReport,
        find_gaps,
        find_late_clashes,
        verify_bucket,
    )

    storage = open_storage(config.storage)
    verdicts: list[BucketReport] = []
    findings: list[BucketFinding] = []
    for name in _types(storage, event_type):
        if hour is not None:
            hours = [parse_hour(hour, config)]
        else:
            hours = list_hours(storage, name, config.parsing.bucket_seconds)
            findings += find_gaps(name, hours)
        checked = []
        for verdict in (verify_bucket(storage, name, each) for each in hours):
            checked.append(verdict)
            findings += verdict.findings
            click.echo(format_bucket_report(verdict), err=as_json)
        findings += find_late_clashes(storage, name, checked)
        verdicts += checked
    print_lines(format_verification_summary(verdicts, findings, as_json))
    if findings:
        raise Finding(
            f"{len(findings)} findings in closed buckets, which Hourmark never changes: find "
            "out who wrote there, "
            "and bring the files back from a copy"
        )


@bucket.command()
@type_argument
@hour_argument
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", help="Print the first N events only."
)
@json_option
@config_option
def cat(event_type: str, hour: str, limit: int | None, as_json: bool, config: Config) -> None:
    """Print the events of a bucket, one per line.

    A line has the time, host, source:position and the fields of the event type. With --json, it is
    the complete event as a JSON object; bytes that are not UTF-8 become {"base64": "…"}.

    \b
    Examples:
      hourmark bucket cat end-song 2026-11-21T05 --limit 3
      hourmark bucket cat end-song 2026-11-21T05 --json | jq .host
    """
    storage = open_storage(config.storage)
    parsed = parse_hour(hour, config)
    events = read_events(storage, event_type, parsed, read_manifest(storage, event_type, parsed))
    print_lines(format_events(itertools.islice(events, limit), as_json))


def _types(storage: Storage, event_type: str | None) -> list[str]:
    found = list_types(storage)
    if event_type is None:
        return found
    if event_type not in found:
        there = ", ".join(found) or "none"
        raise NotClosed(
            f"no bucket of type {event_type!r} is closed below {storage.url('')}; types "
            f"with buckets: {there}"
        )
    return [event_type]


def _row(storage: Storage, event_type: str, hour: Hour) -> dict[str, Any]:
    row: dict[str, Any] = {
        **dict.fromkeys(_COLUMNS),
        "type": event_type,
        "hour": str(hour),
        "state": "closed",
    }
    try:
        manifest = read_manifest(storage, event_type, hour)
    except (NotClosed, BadMarker) as error:
        return row | {"state": "damaged", "problem": str(error)}
    return row | {
        "grade": manifest.grade.value,
        "events": manifest.events,
        "late": sum(manifest.late.values()),
        "duplicates_removed": manifest.duplicates_removed,
        "unaudited": manifest.unaudited,
        "bytes": sum(file.bytes for file in manifest.files),
        "closed_after_s": round((manifest.closed_at_ms - hour.end_ms) / 1000, 1),
    }


def closed_bucket_rows(
    config: Config, event_type: str | None, from_hour: str | None, to_hour: str | None
) -> list[dict[str, Any]]:
    """Return table rows about closed buckets, read from the ledger.

    Args:
        config: Configuration that contains the ledger URL (`etl.ledger`).
        event_type: The only event type to list; None lists all.
        from_hour: First hour, as written on the command line; None starts with the oldest bucket.
        to_hour: Last hour, as written on the command line; None ends with the newest bucket.

    Returns:
        One dict for each bucket, sorted by type and hour. The keys are column names such as `type`,
        `hour`, `state` and `events`. If the ledger row of a bucket is damaged, `state` is `damaged`
        and `problem` is the error.

    Raises:
        UsageError: The text of an hour is not the start of a bucket.
        Unavailable: There is no ledger, or it does not respond.
    """
    length_s = config.parsing.bucket_seconds
    from_s = parse_hour(from_hour, config).start_s if from_hour else 0
    to_s = parse_hour(to_hour, config).start_s if to_hour else None
    label = functools.cache(lambda hour_s: str(Hour(hour_s, length_s)))
    with open_existing_ledger(config) as database, database.reading() as connection:
        found = bucket_rows(connection, event_type, from_s=from_s, to_s=to_s)
        rows = [_known_row(row, label(row.hour_s), 1000 * (row.hour_s + length_s)) for row in found]
    return sorted(rows, key=lambda row: (row["type"], row["hour"]))


def _known_row(row: BucketRow, hour: str, end_ms: int) -> dict[str, Any]:
    known: dict[str, Any] = {
        **_NOTHING_KNOWN,
        "type": row.event_type,
        "hour": hour,
        "state": "closed",
    }
    try:
        m = from_json(
            row.manifest
        )  # without validation, which would take most of the time; the ledger wrote it
        return known | {
            "grade": row.grade,
            "events": m["events"],
            "late": sum(m["late"].values()),
            "duplicates_removed": m["duplicates_removed"],
            "unaudited": m["unaudited"],
            "bytes": sum(file["bytes"] for file in m["files"]),
            "closed_after_s": round((row.closed_at_ms - end_ms) / 1000, 1),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return known | {
            "state": "damaged",
            "problem": str(make_damaged_bucket_error(row.event_type, row.hour_s)),
        }


def _show_rows(rows: Sequence[dict[str, Any]], as_json: bool, nothing: str) -> None:
    if as_json:
        print_json(rows)
    elif rows:
        _print_table(rows)
    else:
        click.echo(nothing, err=True)


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    shown = [
        row | {"grade": row["grade"] or (row["state"] if row["state"] != "damaged" else None)}
        for row in rows
    ]
    columns = [c for c in _COLUMNS if c != "waits_for" or any(row["waits_for"] for row in rows)]
    print_lines(format_table(shown, columns, _LEFT))
    for row in rows:
        if problem := row.get("problem"):
            click.echo(f"{row['type']} {row['hour']}: {problem}", err=True)
