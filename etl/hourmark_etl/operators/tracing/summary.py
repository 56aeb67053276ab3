"""Summarizes a trace: the stage that the event has reached, and the result of each step.

A step has the state `no` only if it searched everything that may contain the event; otherwise it
has the state `not_found`, with the places that were searched. The verdict is `lost` only if a stage
has passed the event, the next stage was searched completely, and the event is not there.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hourmark.records import dead_letters
from hourmark.records.hours import Hour
from hourmark_etl.humanize import format_count, format_iso
from hourmark_etl.model import ReportedSource
from hourmark_etl.operators.tracing.query import HostTrace
from hourmark_etl.operators.tracing.results import (
    FoundAuditRecord,
    FoundBucketRecord,
    FoundKafkaRecord,
    FoundStagedRow,
    SearchResult,
    TraceResults,
    found_value,
)


class TraceVerdict(enum.StrEnum):
    """Conclusion of a trace: the last pipeline stage that a traced event has reached.

    - `ON_HOST`, `ACKNOWLEDGED`, `IN_KAFKA`, `MIRRORED`, `STAGED`, `IN_BUCKET`: The event reached
      this stage. The stages are in pipeline order.
    - `NOT_FOUND`: No stage that was searched has the event.
    - `UNKNOWN`: A server did not respond.
    - `LOST`: The event is missing at a stage that must have it.
    """

    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"
    ON_HOST = "on_host"
    ACKNOWLEDGED = "acknowledged"
    IN_KAFKA = "in_kafka"
    MIRRORED = "mirrored"
    STAGED = "staged"
    IN_BUCKET = "in_bucket"
    LOST = "lost"

    @property
    def is_found(self) -> bool:
        """Return whether the event was found at any pipeline stage.

        Returns:
            False for `NOT_FOUND`, `UNKNOWN` and `LOST`; otherwise True.
        """
        return self not in (TraceVerdict.NOT_FOUND, TraceVerdict.UNKNOWN, TraceVerdict.LOST)


class StepState(enum.StrEnum):
    """Outcome of one search of a trace.

    - `YES`: The event was found.
    - `NO`: The event is certainly not there.
    - `NOT_FOUND`: The event was not found, but not everything was searched.
    - `UNREACHABLE`: A server did not respond.
    - `NOT_ASKED`: The search was not run because its input is unknown.
    """

    YES = "yes"
    NO = "no"
    NOT_FOUND = "not_found"
    UNREACHABLE = "unreachable"
    NOT_ASKED = "not_asked"


@dataclasses.dataclass(frozen=True, slots=True)
class TraceStep:
    """Human-readable result of searching one pipeline stage for a traced event.

    Attributes:
        name: Name of the pipeline stage that was searched, for example `edge`.
        state: Outcome of the search.
        what: Human-readable description of the object that was found, or of the searched places.
    """

    name: str
    state: StepState
    what: str


@dataclasses.dataclass(frozen=True, slots=True)
class TraceSummary:
    """Human-readable result of a trace, as shown to the operator.

    Attributes:
        verdict: Last pipeline stage that the event has reached.
        summary: One sentence about the verdict.
        next_step: Human-readable next step for the operator.
        steps: Results for each pipeline stage, in pipeline order.
    """

    verdict: TraceVerdict
    summary: str
    next_step: str
    steps: tuple[TraceStep, ...]


_SUMMARY: Final = {
    TraceVerdict.NOT_FOUND: (
        "not found in the data that still exists and was searched; this does not mean that it is lost"
    ),
    TraceVerdict.UNKNOWN: "unknown, because a server that may have it did not respond",
    TraceVerdict.ON_HOST: "on its host: no server has acknowledged it",
    TraceVerdict.ACKNOWLEDGED: "acknowledged, but its record was not found in the data that still exists and was searched",
    TraceVerdict.IN_KAFKA: "in Kafka, at the edge",
    TraceVerdict.MIRRORED: "in Kafka, on the central cluster, and not staged yet",
    TraceVerdict.STAGED: "staged, and in no closed bucket yet",
    TraceVerdict.IN_BUCKET: "in a closed bucket",
    TraceVerdict.LOST: "LOST: it is missing where it must be",
}


def summarize_trace(results: TraceResults, host: HostTrace | None = None) -> TraceSummary:
    """Summarize the search results of a trace for the operator.

    Args:
        results: Results of all searches, from `EventTracer.trace`.
        host: Parsed output of `hourmark tail trace` on the host of the line; None if it is not
            available.

    Returns:
        The last stage that the event has reached, the next step for the operator, and the result of
        each search.
    """
    verdict = _verdict(results, host)
    kind = (
        "a dead letter, "
        if results.event_type == dead_letters.TYPE and results.event_id is not None
        else ""
    )
    return TraceSummary(
        verdict,
        _before(results) + kind + _SUMMARY[verdict],
        _next_step(verdict, results, host),
        tuple(_steps(results, host)),
    )


def _before(results: TraceResults) -> str:
    # The requested position may be inside a record that begins earlier.
    acknowledged = found_value(results.audit_record)
    if results.begins_at is None or acknowledged is None:
        return ""
    blank = "" if acknowledged.record.blanks == 0 else ", or a blank line after it"
    return f"a later line of the record that begins at byte {results.begins_at}{blank}; that record is: "


def loss_reason(results: TraceResults) -> str | None:
    """Return a human-readable statement of where a traced event was lost.

    An event counts as lost if one pipeline stage (mirror, staging or closing) has advanced past it,
    and a complete search of the output of this stage did not find it.

    Args:
        results: Results of all searches of the trace.

    Returns:
        The statement; None if the results do not prove a loss.
    """
    edge, staged, standing = (
        found_value(results.edge_record),
        found_value(results.staged_row),
        found_value(results.oldest_open_hour),
    )
    if not _is_absent(results.bucket_record):
        return None
    if staged is not None:
        is_closed = (
            standing is not None and staged.listed is not None and staged.listed < standing.hour
        )
        return (
            f"it was staged for the bucket {staged.listed}, which is closed, but no bucket "
            "contains it"
            if is_closed
            else None
        )
    last = found_value(results.central_record) if results.is_mirrored else edge
    if last is not None:
        staging = found_value(results.staging_offset) or 0
        is_past = last.offset < staging and _is_absent(results.staged_row)
        return (
            f"staging has passed its record and is at offset {staging}, but no staged file or "
            "bucket contains it"
            if is_past
            else None
        )
    mirror = found_value(results.mirror_offset) or 0
    if edge is not None and mirror > edge.offset and _is_absent(results.central_record):
        return (
            f"the mirror has passed its record and is at offset {mirror}, but the central "
            "cluster does not have it"
        )
    return None


def _is_absent(step: SearchResult[Any] | None) -> bool:
    return step is not None and step.value is None and step.is_complete and step.error is None


def _verdict(results: TraceResults, host: HostTrace | None) -> TraceVerdict:
    if loss_reason(results) is not None:
        return TraceVerdict.LOST
    steps: tuple[tuple[SearchResult[Any] | None, TraceVerdict], ...] = (
        (results.bucket_record, TraceVerdict.IN_BUCKET),
        (results.staged_row, TraceVerdict.STAGED),
        (results.central_record if results.is_mirrored else None, TraceVerdict.MIRRORED),
        (results.edge_record, TraceVerdict.IN_KAFKA),
        (results.audit_record, TraceVerdict.ACKNOWLEDGED),
    )
    for step, verdict in steps:
        if found_value(step) is not None:
            return verdict
    if host is not None and host.stage in ("not_read", "spooled"):
        return TraceVerdict.ON_HOST
    failed = any(step is not None and step.error is not None for step, _ in steps)
    return TraceVerdict.UNKNOWN if failed else TraceVerdict.NOT_FOUND


def _next_step(verdict: TraceVerdict, results: TraceResults, host: HostTrace | None) -> str:
    event_type = results.event_type
    if verdict is TraceVerdict.IN_BUCKET:
        bucket = found_value(results.bucket_record)
        assert bucket is not None
        return f"`hourmark bucket cat {event_type} {bucket.hour}` prints that bucket's events"
    if verdict is TraceVerdict.LOST:
        return (
            "`hourmark mirror verify`, `hourmark ledger check` and `hourmark audit --ranges` "
            "show which other data is missing; please report this"
        )
    if (
        verdict is TraceVerdict.STAGED
        and (standing := found_value(results.oldest_open_hour)) is not None
    ):
        return (
            f"`hourmark bucket why {event_type} {standing.hour}` shows what the type's next "
            "hour waits for"
        )
    if host is not None and (
        verdict is TraceVerdict.ON_HOST or results.audit_record is None
    ):  # the host does not know a position to trace
        return host.next_step
    reports = found_value(results.tailer_reports) or ()
    if verdict is TraceVerdict.NOT_FOUND and any(r.lost_bytes or r.unknown_losses for r in reports):
        return (
            "its host has lost lines before they were read: `hourmark tail status` there "
            "names files and times"
        )
    return {
        TraceVerdict.STAGED: "`hourmark bucket ls` shows what the type's next hour waits for",
        TraceVerdict.MIRRORED: "check in the log of `hourmark etl run` that batches are staged",
        TraceVerdict.IN_KAFKA: (
            "`hourmark mirror lag` shows whether the mirror copies; `hourmark etl run` stages "
            "what it has copied"
        ),
        TraceVerdict.ACKNOWLEDGED: (
            "check that a line begins at this byte. A blank line produces no record; `hourmark "
            "audit --ranges` counts them"
        ),
        TraceVerdict.NOT_FOUND: "check which data each step searched; --since, --until and --records-max extend the "
        "search. On the line's host, `hourmark tail trace FILE:LINE` shows whether it was "
        "sent",
    }.get(
        verdict,
        "check that the named servers are running and can be reached from here, then repeat "
        "the command",
    )


def _steps(results: TraceResults, host: HostTrace | None) -> Iterator[TraceStep]:
    if host is not None:
        losses = (
            f"; {host.losses} losses were recorded under the file's names" if host.losses else ""
        )
        yield TraceStep("host", StepState.YES, f"{host.stage}: {host.path}{losses}")
    if results.tailer_reports is not None:
        yield _step(
            "reported",
            results.tailer_reports,
            _reported,
            "no tailer of that host id or name has ever reported",
        )
    yield _step(
        "acknowledged",
        results.audit_record,
        _acknowledged,
        "no audit record: it was never acknowledged",
    )
    yield _step("edge", results.edge_record, _record)
    if results.is_mirrored:
        yield _step(
            "mirrored",
            results.central_record,
            _record,
            _behind(results.mirror_offset, "the mirror copies"),
        )
    yield _step(
        "staged", results.staged_row, _staged, _behind(results.staging_offset, "staging continues")
    )
    yield _step("bucket", results.bucket_record, _in_bucket, _frontier(results))
    if (
        (event := results.event) is not None
        and results.event_type == dead_letters.TYPE
        and "reason" in event
    ):
        yield TraceStep(
            "dead letter",
            StepState.YES,
            f"{event['reason']}: {escape_unprintable(event['detail'])}",
        )
    if (what := loss_reason(results)) is not None:
        yield TraceStep("lost", StepState.YES, what)


def _step(name: str, step: SearchResult[Any] | None, describe: Any, why: str = "") -> TraceStep:
    if step is None:
        return TraceStep(name, StepState.NOT_ASKED, "the input of this search is unknown")
    if step.error is not None:
        return TraceStep(name, StepState.UNREACHABLE, step.error)
    if step.value is not None:
        return TraceStep(name, StepState.YES, describe(step.value))
    more = f"; {why}" if why else ""
    return TraceStep(
        name,
        StepState.NO if step.is_complete else StepState.NOT_FOUND,
        f"searched {step.searched}{more}",
    )


def _reported(reports: Sequence[ReportedSource]) -> str:
    return "; ".join(map(_report, reports))


def _report(r: ReportedSource) -> str:
    caught_up = (
        "has never caught up"
        if r.caught_up_at_ms is None
        else f"had caught up at {format_iso(r.caught_up_at_ms)}"
    )
    lost = (
        f", {format_count(r.lost_bytes, 'byte')} lost before they were read" if r.lost_bytes else ""
    )
    unknown = (
        f", {format_count(r.unknown_losses, 'occasion')} of unknown loss"
        if r.unknown_losses
        else ""
    )
    goodbye = ", and reported a goodbye" if r.goodbye else ""
    return (
        f"{escape_unprintable(r.name)} ({r.host_id}) {caught_up}, {format_count(r.pending_bytes, 'byte')} "
        f"pending{lost}{unknown}; received at "
        f"{format_iso(r.received_at_ms)}{goodbye}"
    )


def _acknowledged(audit: FoundAuditRecord) -> str:
    r = audit.record
    promised = (
        ", ".join(
            f"{p.count} of {p.event_type} {format_iso(p.hour_start_s * 1000)[:16]}"
            for p in r.promised
        )
        or "nothing"
    )
    blanks = f", {format_count(r.blanks, 'blank line')}" if r.blanks else ""
    others = ""
    if audit.other_files:
        files = format_count(audit.other_files, "older file")
        others = (
            f"; {files} of this path contained this position too: use --until, --generation or "
            "the file's id to distinguish them"
        )
    return (
        f"at {format_iso(audit.at_ms)}: {r.kind} {r.range_id} [{r.start}, {r.end}) of "
        f"{escape_unprintable(r.path)} on {escape_unprintable(r.host_name)}, "
        f"file {r.file_id} generation {r.generation}, {format_count(r.lines, 'line')}{blanks}; "
        f"promised: {promised} "
        f"({audit.topic}-{audit.partition} offset {audit.offset}){others}"
    )


def _record(r: FoundKafkaRecord) -> str:
    return (
        f"topic {r.topic} partition {r.partition} offset {r.offset}, written at "
        f"{format_iso(r.at_ms)}, in range {r.range_id}"
    )


def _staged(s: FoundStagedRow) -> str:
    listed = (
        f"listed for the bucket {s.listed}" if s.listed is not None else "listed for no bucket yet"
    )
    return (
        f"{s.path}, from central partition {s.partition} offset {s.offset}; hour {s.hour}, {listed}"
    )


def _in_bucket(b: FoundBucketRecord) -> str:
    own = Hour.containing(b.event_id.time_ms, b.hour.length_s)
    late = f", as late: its own hour is {own}" if own != b.hour else ""
    return (
        f"{b.file}, record {b.row} from 0; bucket {b.hour}, closed as {b.grade} at "
        f"{format_iso(b.closed_at_ms)}{late}"
    )


def _behind(step: SearchResult[int] | None, what: str) -> str:
    if step is None or step.value is None:
        return "" if step is None or step.error is None else step.error
    return f"{what} from offset {step.value} of its partition"


def _frontier(results: TraceResults) -> str:
    if results.oldest_open_hour is None:
        return ""
    if results.oldest_open_hour.value is None:
        return (
            results.oldest_open_hour.error or f"the ledger has no event type {results.event_type}"
        )
    return (
        f"the next hour of {results.event_type} to close is {results.oldest_open_hour.value.hour} "
        f"({results.oldest_open_hour.value.state.value})"
    )


def escape_unprintable(text: str) -> str:
    r"""Escape all non-printable characters of a text, so that it is safe to print on a terminal.

    Args:
        text: Any text, for example a log line from an untrusted host.

    Returns:
        The text with Python escape sequences such as `\x1b` or `\n`; printable characters are
        unchanged.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
