"""`hourmark trace`: shows the pipeline stage that a line, event or record has reached."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import click

from hourmark.clock import SystemClock
from hourmark.config.groups import KafkaSettings
from hourmark.config.loading import Config, config_option
from hourmark.errors import UsageError
from hourmark.printing import json_option, print_json, to_json_value
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.operators.dead_letter_selection import parse_time_ms
from hourmark_etl.operators.tracing.kafka_search import RECORDS_MAX, KafkaSearch
from hourmark_etl.operators.tracing.query import (
    HostTrace,
    TraceQuery,
    parse_host_trace,
    parse_query,
)
from hourmark_etl.operators.tracing.results import TraceResults, found_value
from hourmark_etl.operators.tracing.storage_search import StorageSearch
from hourmark_etl.operators.tracing.summary import (
    TraceSummary,
    TraceVerdict,
    escape_unprintable,
    summarize_trace,
)
from hourmark_etl.operators.tracing.tracer import EventTracer, SendWindow
from hourmark_etl.options import print_lines
from hourmark_etl.storage import open_storage

_CLOCKS_APART_MS = 900_000


@click.command()
@click.argument("what", metavar="[WHAT]", required=False)
@click.option(
    "--type",
    "event_type",
    help="For an event id: its event type. For a HOST:FILE:OFFSET of an old line: the event type "
    "whose closed buckets are searched.",
)
@click.option(
    "--generation",
    type=click.IntRange(min=0),
    help="For HOST:FILE:OFFSET: number of times that the file had been truncated.",
)
@click.option(
    "--from",
    "answer",
    type=click.File(),
    help="File with the output of `hourmark tail trace … --json`; - is standard input.",
)
@click.option(
    "--since",
    help="Start of the period in which the event was sent: 2026-11-21T05, 2026-11-21T05:30, or 2h, "
    "30m or 3d before now.",
)
@click.option(
    "--until", help="End of the period in which the event was sent, in the format of --since."
)
@click.option(
    "--records-max",
    type=click.IntRange(1, 100_000_000),
    default=RECORDS_MAX,
    show_default=True,
    help="Maximum number of Kafka records that one search reads.",
)
@click.option(
    "--site",
    help=(
        "Alias of the only site to search (see kafka.further_edges). Default: all sites, one "
        "after the other."
    ),
)
@json_option
@config_option
def trace(
    config: Config,
    what: str | None,
    event_type: str | None,
    generation: int | None,
    answer: TextIO | None,
    since: str | None,
    until: str | None,
    records_max: int,
    site: str | None,
    as_json: bool,
) -> None:
    """Show which stage an event has reached: acknowledged, in Kafka, mirrored, staged, in a bucket.

    WHAT is one of the following:

    \b
    - the id of an event
    - TOPIC:PARTITION:OFFSET of a record on the edge cluster or the central cluster
    - HOST:FILE:OFFSET of a line: the id or name of a host, the id of a file or its path when it was
      read, and the byte at which the line begins

    For a dead letter, the command also shows the reason. If a server does not respond, the command
    reports this and continues to search the others. It searches several sites one after the other,
    and changes nothing.

    The exit code is 1 if the event was not found or is lost, or if a server that may have it did
    not respond. With --json, the field `verdict` states which of these is the case.

    \b
    Examples:
      hourmark trace web-1:/var/log/app/app.log:98211 --since 2h
      hourmark trace web-1:/var/log/app/app.log:98211 --type click --since 2026-10-02T05 --until 2026-10-02T07
      hourmark trace events.click:3:1200411
      hourmark trace 019aab5e-7c00-8a51-9d1c-4be1f0a4be11 --type click --json
      ssh web-1 hourmark tail trace /var/log/app/app.log:1734 --json | hourmark trace --from -
    """
    query, host = _query(what, event_type, generation, answer)
    if query is None:
        alias, results = None, TraceResults(is_mirrored=config.kafka.mirrored)
    else:
        window = _window(since, until, SystemClock().now_ms())
        alias, results = _at_a_site(config, _sites(config.kafka, site), query, window, records_max)
    if not config.kafka.further_edges:
        alias = None  # with a single site, the output needs no site name
    summary = summarize_trace(results, host)
    if as_json:
        print_json(_as_object(summary, results, alias))
    else:
        print_lines(_text(summary, results, alias))
    if not summary.verdict.is_found:
        raise SystemExit(1)


def _query(
    what: str | None, event_type: str | None, generation: int | None, answer: TextIO | None
) -> tuple[TraceQuery | None, HostTrace | None]:
    if (what is None) == (answer is None):
        raise UsageError(
            "specify either WHAT, or --from with the output of `hourmark tail trace … --json`"
        )
    if answer is not None:
        return parse_host_trace(answer.read(), event_type)
    assert what is not None
    return parse_query(what, event_type, generation), None


def _sites(kafka: KafkaSettings, alias: str | None) -> list[KafkaSettings]:
    chosen = [of for of in kafka.sites if alias in (None, of.edge_alias)]
    if not chosen:
        raise UsageError(
            f"--site {alias} is not a site; allowed: "
            f"{', '.join(of.edge_alias for of in kafka.sites)}"
        )
    return chosen


def _at_a_site(
    config: Config,
    sites: Sequence[KafkaSettings],
    query: TraceQuery,
    window: SendWindow,
    records_max: int,
) -> tuple[str, TraceResults]:
    # Prefers the first site that has the event, then one where a server did not respond.
    now_ms, length_s = SystemClock().now_ms(), config.parsing.bucket_seconds
    known, refused = list[tuple[str, TraceResults]](), list[UsageError]()
    with contextlib.closing(
        StorageSearch(
            lambda: open_existing_ledger(config),
            open_storage(config.storage),
            length_s,
            _say_progress,
        )
    ) as storage:
        for kafka in sites:
            topics = KafkaSearch(kafka, _say_progress, now_ms=now_ms, records_max=records_max)
            try:
                known.append(
                    (kafka.edge_alias, EventTracer(topics, storage, length_s, window).trace(query))
                )
            except UsageError as error:  # a topic of another site
                refused.append(error)
                continue
            if summarize_trace(known[-1][1]).verdict not in (
                TraceVerdict.NOT_FOUND,
                TraceVerdict.UNKNOWN,
            ):
                return known[-1]
    if not known:
        raise refused[0]
    return next(
        (result for result in known if summarize_trace(result[1]).verdict is TraceVerdict.UNKNOWN),
        known[0],
    )


def _window(since: str | None, until: str | None, now_ms: int) -> SendWindow:
    try:
        window = SendWindow(
            since_ms=parse_time_ms(since, now_ms) if since else 0,
            until_ms=parse_time_ms(until, now_ms) if until else now_ms + _CLOCKS_APART_MS,
        )
    except ValueError as error:
        raise UsageError(f"--since, --until: {error}") from error
    if window.until_ms <= window.since_ms:
        raise UsageError(f"--until {until or 'now'} is not after --since {since}")
    return window


def _text(summary: TraceSummary, results: TraceResults, site: str | None) -> Iterator[str]:
    yield summary.summary
    if site is not None:
        yield f"  according to the data of site {site}"
    if results.event_id is not None:
        yield f"  {results.event_type} {results.event_id}{_of(results)}"
    width = max(len(step.name) for step in summary.steps)
    for step in summary.steps:
        state = "" if step.state == "yes" else f"{step.state.replace('_', ' ')}: "
        yield f"  {step.name.ljust(width)}  {state}{step.what}"
    yield f"next: {summary.next_step}"


def _of(results: TraceResults) -> str:
    if (event := results.event) is None:
        return ""
    return f" of {escape_unprintable(event['host'])}, {escape_unprintable(event['source'])} at {event['position']}"


def _as_object(summary: TraceSummary, results: TraceResults, site: str | None) -> dict[str, Any]:
    acknowledged = found_value(results.audit_record)
    return {
        "verdict": summary.verdict.value,
        "summary": summary.summary,
        **({} if site is None else {"site": site}),
        "type": results.event_type,
        "event_id": None if results.event_id is None else str(results.event_id),
        "begins_at": results.begins_at,
        "event": None
        if results.event is None
        else to_json_value({**results.event, "event_id": str(results.event_id)}),
        "acknowledged_at_ms": None if acknowledged is None else acknowledged.at_ms,
        "steps": [dataclasses.asdict(step) for step in summary.steps],
        "next": summary.next_step,
    }


def _say_progress(text: str) -> None:
    click.echo(text, err=True)
