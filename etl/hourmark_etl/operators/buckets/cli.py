"""`hourmark bucket`: lists, shows, verifies and prints buckets, and explains why an hour waits.

`show`, `verify` and `cat` need storage only, so they work while Kafka, the ledger and the ETL are
down. `ls` and `why` read the ledger, or the markers on storage if the ledger is down. `wait`
(bucket_wait.py) and `force` (override.py) need the ledger. Results go to stdout. The exit code is 1
if there are findings; `why`, `show` and `wait` have further exit codes (bucket_exits.py).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.errors import Finding, HourmarkError, Unavailable, UsageError
from hourmark.printing import json_option, print_json
from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade
from hourmark_etl.buckets.reader import (
    BucketRemoved,
    Event,
    NotClosed,
    list_hours,
    list_types,
    read_events,
    read_manifest,
)
from hourmark_etl.buckets.tombstones import read_removed_buckets
from hourmark_etl.humanize import format_count
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.operators.buckets.copy import copy
from hourmark_etl.operators.buckets.exits import (
    EXIT_CODES,
    BucketExit,
    MissingMarker,
    exit_of_explanation,
    exit_of_grade,
)
from hourmark_etl.operators.buckets.expire import expire
from hourmark_etl.operators.buckets.listing import (
    COLUMNS,
    DAMAGED,
    REMOVED,
    BucketSelection,
    list_buckets,
    summarize_buckets,
)
from hourmark_etl.operators.buckets.text import (
    format_bucket_report,
    format_events,
    format_manifest,
    format_table,
    format_verification_summary,
)
from hourmark_etl.operators.buckets.wait import wait
from hourmark_etl.operators.explain import explain_hour, format_explanation
from hourmark_etl.operators.hour_facts import (
    explain_from_storage,
    note_removal,
    read_hour_facts,
)
from hourmark_etl.operators.override import force
from hourmark_etl.options import (
    hour_argument,
    parse_first_hour,
    parse_hour,
    parse_last_hour,
    print_lines,
    type_argument,
)
from hourmark_etl.storage import Storage, open_storage

_LEFT: Final = ("type", "hour", "grade", "first_hour", "last_hour", "next_hour", "waits_for")
_SUMMARY_COLUMNS: Final = (
    "type",
    "buckets",
    "events",
    *(grade.value for grade in Grade),
    "damaged",
    "removed",
    "first_hour",
    "last_hour",
    "next_hour",
    "waits_for",
)
_ALWAYS: Final = ("type", "hour", "grade")  # other columns are omitted if no row has a value
_LIST_MAX: Final = 20  # lines of a kind that `show` prints


@click.group()
def bucket() -> None:
    """List, show, verify and print hourly buckets, or explain, await and force their closing.

    HOUR is the start of a bucket in UTC, such as 2026-11-21T05. If buckets are shorter than an hour,
    add the minute, as in 2026-11-21T05:07.

    \b
    Examples:
      hourmark bucket ls
      hourmark bucket show end-song 2026-11-21T05
      hourmark bucket verify
      hourmark bucket cat end-song 2026-11-21T05 --limit 3 --json
      hourmark bucket why end-song 2026-11-21T06
      hourmark bucket wait end-song 2026-11-21T06 --timeout 600
      hourmark bucket force end-song 2026-11-21T06 --reason "edge topic lost, ticket 17"
      hourmark bucket expire
      hourmark bucket copy --to-config new.toml
    """


bucket.add_command(wait)
bucket.add_command(force)
bucket.add_command(expire)
bucket.add_command(copy)


@bucket.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.option(
    "--type",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    help="List only types whose names match, such as 'page-*' (repeatable), in addition to TYPE.",
)
@click.option("--from", "from_hour", metavar="HOUR", help="First hour to list.")
@click.option("--to", "to_hour", metavar="HOUR", help="Last hour to list.")
@click.option(
    "--state",
    type=click.Choice(["open", "closed"]),
    help="List only the next hour of each type to close, or only closed buckets. Default: both.",
)
@click.option(
    "--grade",
    "grades",
    type=click.Choice([grade.value for grade in Grade]),
    multiple=True,
    help="List only closed buckets with this grade (repeatable).",
)
@click.option("--summary", is_flag=True, help="Show one row per type instead of one per bucket.")
@json_option
@config_option
def ls(
    event_type: str | None,
    patterns: tuple[str, ...],
    from_hour: str | None,
    to_hour: str | None,
    state: str | None,
    grades: tuple[str, ...],
    summary: bool,
    as_json: bool,
    config: Config,
) -> None:
    """List closed buckets and, for each type, the next hour to close and what it waits for.

    If several conditions are given, all of them must be met. For an open hour, the column grade
    shows its state: open, frozen (being proved) or sealed (being written). With `--state open`, the
    command is fast regardless of the number of closed buckets, because it reads only one row of the
    ledger per type.

    The command reads the ledger, which is the database of the ETL. If the ledger cannot be read, the
    command lists closed buckets from their markers on the storage, which are one file per bucket.
    To compare the content of buckets with their markers, use `hourmark bucket verify`.

    \b
    Examples:
      hourmark bucket ls
      hourmark bucket ls end-song --json
      hourmark bucket ls --state open --type 'page-*' --type end-song
      hourmark bucket ls --from 2026-11-21T00 --to 2026-11-21T23 --grade timed_out --grade forced
      hourmark bucket ls --summary --from 2026-11-01T00
    """
    selection = _parse_selection(
        (*patterns, *filter(None, [event_type])), from_hour, to_hour, state, grades, config
    )
    now_ms = SystemClock().now_ms()
    if summary:
        rows, columns = summarize_buckets(config, selection, now_ms), _SUMMARY_COLUMNS
    else:
        rows, columns = list_buckets(config, selection, now_ms), COLUMNS
    if as_json:
        print_json(rows)
    elif rows:
        _print_table(rows, columns)
    elif selection == BucketSelection():
        click.echo(
            f"no bucket is closed below {open_storage(config.storage).url('')} yet", err=True
        )
    else:
        click.echo("no bucket meets the conditions", err=True)


@bucket.command(epilog=EXIT_CODES)
@type_argument
@hour_argument
@click.option("--all", "show_all", is_flag=True, help="Print all entries of long lists.")
@json_option
@config_option
def show(event_type: str, hour: str, show_all: bool, as_json: bool, config: Config) -> None:
    """Show the manifest of a bucket: grade, evidence, files, late events and offsets.

    Lists of files, byte ranges, hosts, late hours and offsets end after 20 entries, followed by the
    number of omitted entries. To print all entries, use --all. With --json, the manifest is always
    complete.

    \b
    Examples:
      hourmark bucket show end-song 2026-11-21T05
      hourmark bucket show end-song 2026-11-21T05 --all
    """
    storage = open_storage(config.storage)
    parsed = parse_hour(hour, config)
    exit_code = None
    try:
        manifest = read_manifest(storage, event_type, parsed)
    except BucketRemoved as error:
        manifest, exit_code = error.bucket.manifest, BucketExit.REMOVED
        click.echo(str(error), err=True)
    except NotClosed as error:
        raise _explain_missing_marker(config, event_type, parsed, error) from error
    if as_json:
        click.echo(manifest.encode().decode())
    else:
        click.echo(format_manifest(storage, parsed, manifest, None if show_all else _LIST_MAX))
    click.get_current_context().exit(exit_code or exit_of_grade(manifest.grade))


@bucket.command(epilog=EXIT_CODES)
@type_argument
@hour_argument
@json_option
@config_option
def why(event_type: str, hour: str, as_json: bool, config: Config) -> None:
    """Explain why a bucket is not closed, or how it was closed.

    Each reason in the output states what the bucket waits for, how long it has waited, and the next
    step.

    \b
    Examples:
      hourmark bucket why end-song 2026-11-21T06
      hourmark bucket why end-song 2026-11-21T06 --json
    """
    parsed_hour = parse_hour(hour, config)
    now_ms = SystemClock().now_ms()
    try:
        database = open_existing_ledger(config)
    except Unavailable:
        answer = explain_from_storage(config, event_type, parsed_hour)
        if answer is None:
            raise
    else:
        with database:
            answer = explain_hour(
                read_hour_facts(database, config, event_type, parsed_hour, now_ms)
            )
        answer = note_removal(config, answer, parsed_hour, now_ms)
    if as_json:
        print_json(dataclasses.asdict(answer))
    else:
        print_lines(format_explanation(answer, now_ms))
    click.get_current_context().exit(exit_of_explanation(answer))


@bucket.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.argument("hour", metavar="[HOUR]", required=False)
@json_option
@config_option
def verify(event_type: str | None, hour: str | None, as_json: bool, config: Config) -> None:
    """Read closed buckets completely, and report all differences from their manifests.

    The exit code is 1 if there are findings. The command checks the following conditions:

    \b
    - the marker is valid and refers to the marker of the previous bucket
    - the bucket has exactly the listed files, with their sizes, digests, counts and schemas
    - each event id occurs once, and the sum of the ids is correct
    - events have the hours that the manifest states, and each late event is in one bucket only
    - without HOUR: no hour is missing
    - the markers of removed buckets, in tombstones, are part of the chain

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
            length_s = config.parsing.bucket_seconds
            removed = read_removed_buckets(storage, name, length_s)
            hours = sorted({*list_hours(storage, name, length_s), *removed})
        checked = []
        for verdict in (verify_bucket(storage, name, each) for each in hours):
            checked.append(verdict)
            findings += verdict.findings
            click.echo(format_bucket_report(verdict), err=as_json)
        findings += find_gaps(name, hours, checked)
        findings += find_late_clashes(storage, name, checked)
        verdicts += checked
    print_lines(format_verification_summary(verdicts, findings, as_json))
    if findings:
        raise Finding(
            f"{len(findings)} findings in closed buckets, which Hourmark never changes; find out "
            "which program changed them, and restore the files from a copy"
        )


@bucket.command()
@type_argument
@click.argument("hour", metavar="[HOUR]", required=False)
@click.option("--from", "from_hour", metavar="HOUR", help="First hour, if HOUR is omitted.")
@click.option("--to", "to_hour", metavar="HOUR", help="Last hour, if HOUR is omitted.")
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", help="Print only the first N events."
)
@json_option
@config_option
def cat(
    event_type: str,
    hour: str | None,
    from_hour: str | None,
    to_hour: str | None,
    limit: int | None,
    as_json: bool,
    config: Config,
) -> None:
    """Print the events of one bucket, or of all closed buckets of a time span, one per line.

    Each line contains the time, host, source:position and the fields of the event type. With
    --json, each line is the complete event as a JSON object, in which bytes that are not UTF-8
    become {"base64": "…"}.

    Without HOUR, closed buckets are printed in the order of their hours. At the end, unless --limit
    is reached before, the command reports which buckets it has read, and how many hours between
    them have no closed bucket. A late event is printed with the bucket that contains it.

    \b
    Examples:
      hourmark bucket cat end-song 2026-11-21T05 --limit 3
      hourmark bucket cat end-song 2026-11-21T05 --json | jq .host
      hourmark bucket cat end-song --from 2026-11-21T00 --to 2026-11-21T23
    """
    storage = open_storage(config.storage)
    if hour is None:
        selection = _parse_selection((), from_hour, to_hour, None, (), config)
        (known_type,) = _types(storage, event_type)
        hours = list_hours(
            storage, known_type, config.parsing.bucket_seconds, selection.first, selection.last
        )
        events = _read_closed(storage, known_type, hours)
    elif from_hour is not None or to_hour is not None:
        raise UsageError("HOUR selects one bucket; omit it, or omit --from and --to")
    else:
        parsed = parse_hour(hour, config)
        manifest = read_manifest(storage, event_type, parsed)
        events = read_events(storage, event_type, parsed, manifest)
    print_lines(format_events(itertools.islice(events, limit), as_json))


def _read_closed(storage: Storage, event_type: str, hours: Sequence[Hour]) -> Iterator[Event]:
    """Yield the events of several buckets, and report on stderr which buckets were read."""
    closed = []
    for hour in hours:
        try:
            manifest = read_manifest(storage, event_type, hour)
        except NotClosed as error:
            click.echo(f"{error}; its events are not printed", err=True)
            continue
        yield from read_events(storage, event_type, hour, manifest)
        closed.append(hour)
    if not closed:
        raise NotClosed(
            f"no bucket of {event_type} in this time span is closed; "
            f"`hourmark bucket ls {event_type}` lists its buckets"
        )
    span = f"{format_count(len(closed), 'bucket')} from {closed[0]} to {closed[-1]}"
    others = (closed[-1].end_s - closed[0].start_s) // closed[0].length_s - len(closed)
    gaps = f"; hours between them without a closed bucket: {others}" if others else ""
    click.echo(f"{span}{gaps}", err=True)


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


def _parse_selection(
    patterns: tuple[str, ...],
    from_hour: str | None,
    to_hour: str | None,
    state: str | None,
    grades: tuple[str, ...],
    config: Config,
) -> BucketSelection:
    if grades and state == "open":
        raise UsageError("--grade selects closed buckets: open hours have no grade; omit --state")
    first = None if from_hour is None else parse_first_hour(from_hour, config)
    last = None if to_hour is None else parse_last_hour(to_hour, config)
    if first and last and first > last:
        raise UsageError(f"--from {first} is after --to {last}; swap the two values")
    return BucketSelection(
        patterns=patterns,
        first=first,
        last=last,
        is_open=None if state is None else state == "open",
        grades=frozenset(map(Grade, grades)),
    )


def _explain_missing_marker(
    config: Config, event_type: str, hour: Hour, error: NotClosed
) -> MissingMarker:
    # The ledger tells an open hour from one that will never have a bucket, or has lost it.
    try:
        with open_existing_ledger(config) as database:
            answer = explain_hour(
                read_hour_facts(database, config, event_type, hour, SystemClock().now_ms())
            )
    except HourmarkError:
        return MissingMarker(str(error), BucketExit.OPEN)
    code = exit_of_explanation(answer)
    if answer.state == "skipped":
        code = BucketExit.NO_BUCKET
    elif answer.grade is not None:  # closed in the ledger
        code = BucketExit.ERROR
    asked = f"`hourmark bucket why {event_type} {hour}`"
    return MissingMarker(f"{error}; {asked} reports: {answer.summary}", code)


def _print_table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    shown = [row | {"grade": _format_grade(row)} if "grade" in columns else row for row in rows]
    used = [c for c in columns if c in _ALWAYS or any(_has_value(row, c) for row in rows)]
    print_lines(format_table(shown, used, _LEFT))
    for row in rows:
        if problem := row.get("problem"):
            click.echo(f"{row['type']} {row['hour']}: {problem}", err=True)


def _format_grade(row: Mapping[str, Any]) -> str | None:
    grade, state = row.get("grade"), row.get("state")
    if grade is None:
        return None if state == DAMAGED else state
    return f"{grade}, removed" if state == REMOVED else str(grade)


def _has_value(row: Mapping[str, Any], column: str) -> bool:
    return bool(row[column]) if column in (DAMAGED, REMOVED) else row[column] is not None
