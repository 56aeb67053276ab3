"""`hourmark bucket`: what is closed, how it was proved, whether it still is what it says, and what is in it.

Reads storage alone: it works while Kafka, the ledger and the ETL are down. Results on stdout; exit 1 on a finding.

How `cat` prints what JSON has no words for: event ids as UUIDs; bytes as a string where they are UTF-8, otherwise as
{"base64": "…"} (lone surrogates would be lost in most JSON readers); times in ISO 8601; numbers that are not finite as strings.
"""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from etl.bucket_checks import BucketFinding, Verdict, find_gaps, find_late_clashes, verify_bucket
from etl.buckets import BadMarker, Event, NotClosed, list_hours, list_types, read_events, read_manifest
from etl.storage import Storage, open_storage
from hourmark.avro import ENVELOPE_NAMES
from hourmark.config import Config, config_option
from hourmark.errors import Finding, UsageError
from hourmark.event_id import EventId
from hourmark.hours import Hour
from hourmark.manifest import Manifest

_COLUMNS = ("type", "hour", "grade", "events", "late", "duplicates_removed", "surplus", "bytes")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


@click.group()
def bucket() -> None:
    """Closed buckets: list, show, verify, print.

    HOUR is written 2026-11-21T05, or 2026-11-21T05:07 where buckets are minutes; always UTC.

    \b
    Examples:
      hourmark bucket ls
      hourmark bucket show end-song 2026-11-21T05
      hourmark bucket verify
      hourmark bucket cat end-song 2026-11-21T05 --limit 3 --json
    """


@bucket.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@json_option
@config_option
def ls(event_type: str | None, as_json: bool, config: Config) -> None:
    """List closed buckets of all types, or of TYPE.

    \b
    Examples:
      hourmark bucket ls
      hourmark bucket ls end-song --json
    """
    storage = open_storage(config.storage)
    rows = [
        _row(storage, name, hour)
        for name in _types(storage, event_type)
        for hour in list_hours(storage, name, config.parsing.bucket_seconds)
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    elif rows:
        _print_table(rows)
    else:
        click.echo(f"no bucket is closed below {storage.url('')} yet", err=True)


@bucket.command()
@click.argument("event_type", metavar="TYPE")
@click.argument("hour", metavar="HOUR")
@json_option
@config_option
def show(event_type: str, hour: str, as_json: bool, config: Config) -> None:
    """Show a bucket's manifest: grade and evidence, files, late events, offsets.

    \b
    Example:
      hourmark bucket show end-song 2026-11-21T05
    """
    storage = open_storage(config.storage)
    parsed = _hour(hour, config)
    manifest = read_manifest(storage, event_type, parsed)
    click.echo(manifest.encode().decode() if as_json else _described(storage, parsed, manifest))


@bucket.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.argument("hour", metavar="[HOUR]", required=False)
@json_option
@config_option
def verify(event_type: str | None, hour: str | None, as_json: bool, config: Config) -> None:
    """Read every byte of closed buckets and name whatever is not as their manifests say. Exit 1 on findings.

    Checked: the marker, exactly the listed files, sizes, digests, counts, schemas, every id once, the sum of ids, hours of
    on-time and late events, late events once over all buckets; and, without HOUR, that no hour is left out.

    \b
    Examples:
      hourmark bucket verify
      hourmark bucket verify end-song
      hourmark bucket verify end-song 2026-11-21T05
    """
    storage = open_storage(config.storage)
    verdicts: list[Verdict] = []
    findings: list[BucketFinding] = []
    for name in _types(storage, event_type):
        if hour is not None:
            hours = [_hour(hour, config)]
        else:
            hours = list_hours(storage, name, config.parsing.bucket_seconds)
            findings += find_gaps(name, hours)
        checked = []
        for verdict in (verify_bucket(storage, name, each) for each in hours):
            checked.append(verdict)
            findings += verdict.findings
            click.echo(_verdict_line(verdict), err=as_json)
        findings += find_late_clashes(storage, name, checked)
        verdicts += checked
    _report(verdicts, findings, as_json)


@bucket.command()
@click.argument("event_type", metavar="TYPE")
@click.argument("hour", metavar="HOUR")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Print the first N events only.")
@json_option
@config_option
def cat(event_type: str, hour: str, limit: int | None, as_json: bool, config: Config) -> None:
    """Print a bucket's events, one a line.

    Without --json: time, host, source:position, and the type's own fields. With it: each event whole, as a JSON object; bytes
    that are not UTF-8 become {"base64": "…"}.

    \b
    Examples:
      hourmark bucket cat end-song 2026-11-21T05 --limit 3
      hourmark bucket cat end-song 2026-11-21T05 --json | jq .host
    """
    storage = open_storage(config.storage)
    parsed = _hour(hour, config)
    events = read_events(storage, event_type, parsed, read_manifest(storage, event_type, parsed))
    for line in _lines(itertools.islice(events, limit), as_json):
        click.echo(line)


def _types(storage: Storage, event_type: str | None) -> list[str]:
    found = list_types(storage)
    if event_type is None:
        return found
    if event_type not in found:
        there = ", ".join(found) or "none"
        raise NotClosed(f"no bucket of type {event_type!r} is closed below {storage.url('')}; types with buckets: {there}")
    return [event_type]


def _hour(label: str, config: Config) -> Hour:
    try:
        return Hour.parse(label, config.parsing.bucket_seconds)
    except ValueError as error:
        raise UsageError(f"HOUR {label!r}: {error} (parsing.bucket_seconds is {config.parsing.bucket_seconds})") from error


def _row(storage: Storage, event_type: str, hour: Hour) -> dict[str, Any]:
    try:
        manifest = read_manifest(storage, event_type, hour)
    except (NotClosed, BadMarker) as error:
        empty = dict.fromkeys(_COLUMNS)
        return {**empty, "type": event_type, "hour": str(hour), "problem": str(error)}
    return {
        "type": event_type,
        "hour": str(hour),
        "grade": manifest.grade.value,
        "events": manifest.events,
        "late": sum(manifest.late.values()),
        "duplicates_removed": manifest.duplicates_removed,
        "surplus": manifest.surplus,
        "bytes": sum(file.bytes for file in manifest.files),
    }


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    cells = [[column.replace("_", " ") for column in _COLUMNS]]
    cells += [[str(row[column]) if row[column] is not None else "-" for column in _COLUMNS] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(_COLUMNS))]
    for line in cells:
        text = [
            value.ljust(width) if index < 3 else value.rjust(width)
            for index, (value, width) in enumerate(zip(line, widths, strict=True))
        ]
        click.echo("  ".join(text).rstrip())
    for row in rows:
        if problem := row.get("problem"):
            click.echo(f"{row['type']} {row['hour']}: {problem}", err=True)


def _described(storage: Storage, hour: Hour, manifest: Manifest) -> str:
    evidence = manifest.evidence
    lines = [
        f"{manifest.type} {manifest.hour}: {manifest.grade.value}, {manifest.events} events",
        f"  folder      {storage.url(hour.bucket_path(manifest.type))}",
        f"  closed      {_iso(manifest.closed_at_ms)} by {manifest.software}, attempt {manifest.attempt}",
        f"  ledger      {manifest.ledger}, commit {manifest.ledger_commit}",
        f"  evidence    {evidence.method}: {evidence.audit_records} audit records, {evidence.promised} events promised, "
        f"cut at {_iso(evidence.cut_at_ms)}",
        *(f"  excused     {excused}" for excused in evidence.excused),
        f"  removed     {manifest.duplicates_removed} duplicates",
        f"  surplus     {manifest.surplus} events that no audit record promised so far",
        *(f"  late        {count} events of {origin}" for origin, count in sorted(manifest.late.items())),
        *(
            f"  file        {f.name}  {f.records} events  {f.bytes} bytes  schema {f.schema_id}  {f.blake2b}"
            for f in manifest.files
        ),
        *(f"  offset      {o.topic}-{o.partition} up to {o.next}" for o in manifest.offsets),
    ]
    return "\n".join(lines)


def _verdict_line(verdict: Verdict) -> str:
    word = "FAULT" if verdict.findings else "ok   "
    return f"{word} {verdict.type} {verdict.hour}: {verdict.events} events, {verdict.size} bytes read"


def _report(verdicts: Sequence[Verdict], findings: Sequence[BucketFinding], as_json: bool) -> None:
    if as_json:
        result = {
            "buckets": len(verdicts),
            "events": sum(verdict.events for verdict in verdicts),
            "bytes": sum(verdict.size for verdict in verdicts),
            "findings": [
                {"type": f.type, "hour": f.hour, "kind": f.kind.value, "file": f.file, "detail": f.detail} for f in findings
            ],
        }
        click.echo(json.dumps(result, indent=1))
    else:
        for finding in findings:
            click.echo(str(finding))
        click.echo(f"{len(verdicts)} buckets, {sum(v.events for v in verdicts)} events, {len(findings)} findings")
    if findings:
        raise Finding(
            f"{len(findings)} findings in closed buckets, which Hourmark never changes: find out who wrote there, "
            "and bring the files back from a copy"
        )


def _lines(events: Iterator[Event], as_json: bool) -> Iterator[str]:
    for event in events:
        plain = {name: _plain(value) for name, value in event.items()} | {"event_id": str(EventId(event["event_id"]))}
        if as_json:
            yield json.dumps(plain, ensure_ascii=False)
        else:
            own = {name: value for name, value in plain.items() if name not in ENVELOPE_NAMES}
            where = f"{plain['source']}:{plain['position']}"
            yield f"{plain['event_time']} {plain['host']} {where} {json.dumps(own, ensure_ascii=False)}"


def _plain(value: object) -> object:  # one case for each kind of Avro value
    match value:
        case bytes():
            return _text(value)
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case dt.datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return str(value)  # decimals, dates, times of day, UUIDs


def _text(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _iso(time_ms: int) -> str:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
