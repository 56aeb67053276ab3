"""Text output for buckets: tables, manifests, results of verification, and events.

Event ids are printed as UUIDs. `hourmark.printing.to_json_value` converts other values that JSON
cannot represent.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hourmark.avro.framing import ENVELOPE_NAMES
from hourmark.printing import to_json_value
from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.buckets.reader import Event
from hourmark_etl.humanize import format_iso
from hourmark_etl.storage import Storage

if TYPE_CHECKING:  # it loads numpy, which printing does not need
    from hourmark_etl.buckets.verify import BucketFinding, BucketReport


def format_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], left_aligned: Sequence[str]
) -> Iterator[str]:
    """Yield a table as text: a header line and one line per row, with aligned columns.

    Args:
        rows: Values by column name; other keys are ignored.
        columns: Names of the columns to show, in order; `_` is printed as a space.
        left_aligned: Names of the columns that are left-aligned; all others are right-aligned.

    Yields:
        Lines without trailing spaces. A value that is missing or None is shown as "-".
    """
    cells = [[column.replace("_", " ") for column in columns]]
    cells += [
        [str(row[column]) if row.get(column) is not None else "-" for column in columns]
        for row in rows
    ]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        text = [
            value.ljust(width) if column in left_aligned else value.rjust(width)
            for column, value, width in zip(columns, line, widths, strict=True)
        ]
        yield "  ".join(text).rstrip()


def format_manifest(
    storage: Storage, hour: Hour, manifest: Manifest, list_max: int | None = None
) -> str:
    """Return a description of a bucket's manifest for operators.

    Args:
        storage: Storage of the bucket. It is used only to format the URL of the bucket's folder.
        hour: Hour of the bucket.
        manifest: Manifest of the bucket, which is the parsed content of its `_SUCCESS` file.
        list_max: Maximum number of lines for each list, such as files or byte ranges. A longer list
            ends with the number of omitted lines. None sets no limit.

    Returns:
        Text of several lines: a headline with type, hour, grade and number of events, then one line
        for each property, file and Kafka offset.
    """
    evidence, previous = manifest.evidence, manifest.previous
    lines = [
        f"{manifest.type} {manifest.hour}: {manifest.grade.value}, {manifest.events} events",
        f"  folder      {storage.url(hour.bucket_path(manifest.type))}",
        f"  closed      {format_iso(manifest.closed_at_ms)} by {manifest.software}, attempt "
        f"{manifest.attempt}",
        f"  ledger      {manifest.ledger}, commit {manifest.ledger_commit}",
        f"  evidence    {evidence.method}: {evidence.audit_records} audit records, "
        f"{evidence.promised} events promised, "
        f"cut at {format_iso(evidence.cut_at_ms)}",
        f"  values      of {manifest.checked} of {evidence.promised} promised events "
        "verified by checksum",
        "  follows     "
        f"{f'{previous.hour}, whose marker has {previous.blake2b}' if previous else 'none: it is the first'}",
        f"  removed     {manifest.duplicates_removed} duplicates",
        f"  unaudited   {manifest.unaudited} events without an audit record so far",
    ]
    if codec := manifest.files_codec:
        lines.append(f"  codec       {codec}")
    if manifest.left_out:
        lines.append(f"  left out    {manifest.left_out} staged rows that could not be written")
    for noun, items in _manifest_lists(manifest):
        lines += _limit_lines(items, list_max, noun)
    return "\n".join(lines)


def _manifest_lists(manifest: Manifest) -> Iterator[tuple[str, list[str]]]:
    # The lists of a manifest that may be long: the plural of what is listed, and a line for each.
    yield "waived conditions", [f"  waived      {waived}" for waived in manifest.evidence.waived]
    if lacks := manifest.lacks:
        yield "ranges", [f"  lacks       range {range_id}" for range_id in lacks.ranges]
        yield "ranges", ["  lacks       further ranges with unknown ids"] if lacks.more else []
    yield (
        "groups of records",
        [
            f"  set aside   {r.records} records of {r.topic} partition {r.partition}, offsets "
            f"{r.first_offset} to {r.last_offset}: {r.reason}"
            for r in manifest.set_aside_records
        ],
    )
    yield (
        "sources",
        [
            f"  lost        {count} bytes of source {source} before they were read"
            for source, count in manifest.lost.items()
        ],
    )
    yield (
        "sources",
        [
            f"  unknown     source {source} may have lost more, on {count} occasions: its hosts' "
            "tailers report the files"
            for source, count in manifest.unknown.items()
        ],
    )
    yield (
        "sources",
        [
            f"  received    source {source}: what never reached a disk of its hosts cannot be sent "
            "again"
            for source in manifest.unrepeatable
        ],
    )
    yield (
        "hours",
        [
            f"  late        {count} events of {origin}"
            for origin, count in sorted(manifest.late.items())
        ],
    )
    yield (
        "files",
        [
            f"  file        {f.name}  {f.records} events  {f.bytes} bytes  schema {f.schema_id}  "
            f"{f.blake2b}"
            for f in manifest.files
        ]
        + [
            f"  parquet     {f.name}  {f.records} events  {f.bytes} bytes  rows of {f.rows_of}  "
            f"{f.blake2b}"
            for f in manifest.parquet
        ],
    )
    yield (
        "partitions",
        [f"  offset      {o.topic}-{o.partition} up to {o.next}" for o in manifest.offsets],
    )


def _limit_lines(lines: list[str], list_max: int | None, noun: str) -> list[str]:
    if list_max is None or len(lines) <= list_max:
        return lines
    left_out = len(lines) - list_max
    return [*lines[:list_max], f"  …           and {left_out} more {noun}: --all prints them"]


def format_bucket_report(report: BucketReport) -> str:
    """Return the result of verifying one bucket as a line of text.

    Args:
        report: Result from `verify_bucket`.

    Returns:
        A line such as `ok    click 2026-11-21T05: 120 events, 4096 bytes read`. It begins with
        `FAULT` if the report has findings; the findings themselves are not included.
    """
    word = "FAULT" if report.findings else "ok   "
    if report.is_removed and report.manifest is not None:
        events = report.manifest.events
        return f"{word} {report.type} {report.hour}: removed, {events} events had been in it"
    return f"{word} {report.type} {report.hour}: {report.events} events, {report.size} bytes read"


def format_verification_summary(
    reports: Sequence[BucketReport], findings: Sequence[BucketFinding], as_json: bool
) -> Iterator[str]:
    """Yield the combined result of verifying several buckets.

    Args:
        reports: Results of all verified buckets.
        findings: All faults, both within these buckets and between them.
        as_json: Whether to yield one JSON document instead of human-readable lines.

    Yields:
        One line per fault and a line with totals, or a single JSON document with the same content.
    """
    if as_json:
        result = {
            "buckets": len(reports),
            "removed": sum(verdict.is_removed for verdict in reports),
            "events": sum(verdict.events for verdict in reports),
            "bytes": sum(verdict.size for verdict in reports),
            "findings": [dataclasses.asdict(f) for f in findings],
        }
        yield json.dumps(result, indent=1)
    else:
        yield from map(str, findings)
        removed = sum(verdict.is_removed for verdict in reports)
        yield (
            f"{len(reports)} buckets{f' ({removed} removed)' if removed else ''}, "
            f"{sum(v.events for v in reports)} events, {len(findings)} findings"
        )


def format_events(events: Iterator[Event], as_json: bool) -> Iterator[str]:
    """Yield each event as a line of text.

    Args:
        events: Decoded events of one type.
        as_json: Whether to yield the complete event as a JSON object. Otherwise, the line contains
            the time, the host, `source:position`, and the fields of the event type as JSON.

    Yields:
        One line for each event, in the given order.
    """
    for event in events:
        row = {name: to_json_value(value) for name, value in event.items()} | {
            "event_id": str(EventId(event["event_id"]))
        }
        if as_json:
            yield json.dumps(row, ensure_ascii=False)
        else:
            own = {name: value for name, value in row.items() if name not in ENVELOPE_NAMES}
            where = f"{row['source']}:{row['position']}"
            yield f"{row['event_time']} {row['host']} {where} {json.dumps(own, ensure_ascii=False)}"
