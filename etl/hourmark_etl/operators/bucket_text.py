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


def format_manifest(storage: Storage, hour: Hour, manifest: Manifest) -> str:
    """Return a description of a bucket's manifest for operators.

    Args:
        storage: Storage of the bucket. It is used only to format the URL of the bucket's folder.
        hour: Hour of the bucket.
        manifest: Manifest of the bucket, which is the parsed content of its `_SUCCESS` file.

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
        *(f"  waived     {waived}" for waived in evidence.waived),
        f"  removed     {manifest.duplicates_removed} duplicates",
        *(
            f"  set aside   {r.records} records of {r.topic} partition {r.partition}, offsets "
            f"{r.first_offset} to "
            f"{r.last_offset}: {r.reason}"
            for r in manifest.set_aside_records
        ),
        f"  unaudited     {manifest.unaudited} events that no audit record promised so far",
        *(
            f"  lost        {count} bytes of source {source} before they were read"
            for source, count in manifest.lost.items()
        ),
        *(
            (
                f"  unknown     source {source} may have lost more, on {count} occasions: its "
                "hosts' tailers report the files"
            )
            for source, count in manifest.unknown.items()
        ),
        *(
            (
                f"  received    source {source}: what never reached a disk of its hosts "
                "cannot be sent again"
            )
            for source in manifest.unrepeatable
        ),
        *(
            f"  late        {count} events of {origin}"
            for origin, count in sorted(manifest.late.items())
        ),
        *(
            (
                f"  file        {f.name}  {f.records} events  {f.bytes} bytes  schema "
                f"{f.schema_id}  {f.blake2b}"
            )
            for f in manifest.files
        ),
        *(f"  offset      {o.topic}-{o.partition} up to {o.next}" for o in manifest.offsets),
    ]
    return "\n".join(lines)


def format_bucket_report(report: BucketReport) -> str:
    """Return the result of verifying one bucket as a line of text.

    Args:
        report: Result from `verify_bucket`.

    Returns:
        A line such as `ok    click 2026-11-21T05: 120 events, 4096 bytes read`. It begins with
        `FAULT` if the report has findings; the findings themselves are not included.
    """
    word = "FAULT" if report.findings else "ok   "
    return f"{word} {report.type} {report.hour}: {report.events} events, {report.size} bytes read"


def format_verification_summary(
    reports: Sequence[BucketReport], findings: Sequence[BucketFinding], as_json: bool
) -> Iterator[str]:
    """Yield the combined result of verifying several buckets.

    Args:
        reports: Results of all verified buckets.
        findings: All faults, both within these buckets and between them.
        as_json: Whether to yield one JSON document instead of readable lines.

    Yields:
        One line per fault and a line with totals, or a single JSON document with the same content.
    """
    if as_json:
        result = {
            "buckets": len(reports),
            "events": sum(verdict.events for verdict in reports),
            "bytes": sum(verdict.size for verdict in reports),
            "findings": [dataclasses.asdict(f) for f in findings],
        }
        yield json.dumps(result, indent=1)
    else:
        yield from map(str, findings)
        yield (
            f"{len(reports)} buckets, {sum(v.events for v in reports)} events, "
            f"{len(findings)} findings"
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
