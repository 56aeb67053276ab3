"""`hourmark bucket why` and `force`: explain why an hour waits, and order its closing.

Both read the ledger, so they work while Kafka, storage and the driver are down. If the ledger is
down, `why` explains closed hours from their markers.
"""

from __future__ import annotations

import dataclasses
import getpass
import socket
import sys
from typing import Any

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.config.redaction import redact
from hourmark.errors import HourmarkError, Unavailable, UsageError
from hourmark.printing import json_option, print_json
from hourmark.records.hours import Hour
from hourmark_etl.buckets.reader import read_manifest
from hourmark_etl.humanize import format_duration
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.heartbeat import describe_missing_driver, last_heartbeat_ms
from hourmark_etl.ledger.hosts.reporters import reporters
from hourmark_etl.ledger.maintenance import overview
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.ledger.overrides import (
    Blocker,
    blockers,
    check_override_effective,
    is_override_ineffective,
    overrides,
    put_override,
    put_overrides,
)
from hourmark_etl.ledger.staged.set_aside import count_unreviewed_records
from hourmark_etl.model import Frontier
from hourmark_etl.operators.explain import (
    Explanation,
    HourFacts,
    explain_closed_hour,
    format_explanation,
)
from hourmark_etl.operators.explain import explain_hour as explain
from hourmark_etl.options import hour_argument, parse_hour, print_lines, type_argument
from hourmark_etl.storage import open_storage

_WAITS_SHOWN = 100  # characters in a table


@click.command()
@type_argument
@hour_argument
@json_option
@config_option
def why(event_type: str, hour: str, as_json: bool, config: Config) -> None:
    """Explain why a bucket is not closed, or how it was closed.

    Each reason states what the bucket waits for, since when, and the next step.

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
        answer = _closed_on_storage(config, event_type, parsed_hour)
        if answer is None:
            raise
    else:
        with database:
            answer = explain(_facts(database, config, event_type, parsed_hour, now_ms))
    if as_json:
        print_json(dataclasses.asdict(answer))
    else:
        print_lines(format_explanation(answer, now_ms))


@click.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.argument("hour", metavar="[HOUR]", required=False)
@click.option(
    "--reason",
    metavar="TEXT",
    required=True,
    help="Reason; it is stored permanently in the bucket's manifest.",
)
@click.option(
    "--all-types",
    is_flag=True,
    help="Override the next hour of every type: for a gap in promises or reports.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@config_option
def force(
    event_type: str | None,
    hour: str | None,
    reason: str,
    all_types: bool,
    yes: bool,
    as_json: bool,
    config: Config,
) -> None:
    """Order a bucket to be closed with the grade `forced`, without the events that are missing.

    HOUR must be the next hour of the type to close. Its manifest states what is missing: sources,
    promises, and records that the mirror did not copy. Events that arrive later become late events
    of later buckets. Nothing is deleted, and a closed bucket is never changed. The running driver
    (`hourmark etl run`) carries the override out at its next poll. For an hour that is already
    sealed, an override only gives up staged files that are lost and rows that cannot be written.

    A gap in the topics of promises or reports concerns every type: use `--all-types` instead of TYPE
    and HOUR to close the next hour of each type.

    \b
    Examples:
      hourmark bucket force end-song 2026-11-21T06 --reason "edge topic lost, ticket 17"
      hourmark bucket force end-song 2026-11-21T06 --reason "ticket 17" --yes --json
      hourmark bucket force --all-types --reason "audit topic recreated, ticket 18"
    """
    if all_types == (event_type is not None) or (event_type is None) != (hour is None):
        raise UsageError(
            "name TYPE and HOUR, or --all-types and neither; `hourmark bucket force "
            "--help` has examples"
        )
    now_ms = SystemClock().now_ms()
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    length_s = config.parsing.bucket_seconds
    with open_existing_ledger(config) as database:
        if event_type is not None and hour is not None:
            parsed_hour = parse_hour(hour, config)
            facts = _facts(database, config, event_type, parsed_hour, now_ms)
            if (
                facts.frontier is not None and facts.frontier.hour == parsed_hour
            ):  # `put_override` refuses any other hour
                check_override_effective(facts.frontier, facts.blocker)
                _confirm(facts, yes)
            put_override(database, event_type, parsed_hour, reason, by, now_ms)
            ordered = {event_type: parsed_hour}
        else:
            _confirm_all(database, length_s, yes)
            ordered = put_overrides(database, length_s, reason, by, now_ms)
        silent = describe_missing_driver(last_heartbeat_ms(database), now_ms)
        waiting = blockers(database, length_s)
        sealed = {
            f.event_type
            for f in frontiers(database, length_s)
            if is_override_ineffective(f, waiting.get(f.event_type))
        }
    if as_json:
        rows = [
            {"type": t, "hour": str(h), "reason": reason, "requested_by": by}
            for t, h in sorted(ordered.items())
        ]
        print_json(rows)
    else:
        for name, ordered_hour in sorted(ordered.items()):
            what = "sealed already, and closes as it is" if name in sealed else "ordered"
            click.echo(
                f"{name} {ordered_hour}: {what}; `hourmark bucket why {name} "
                f"{ordered_hour}` shows its progress"
            )
    if silent:
        click.echo(f"{silent}; `hourmark etl run` carries the override out", err=True)


def next_bucket_rows(config: Config, event_type: str | None) -> list[dict[str, Any]]:
    """Return table rows about the next hour to close of each event type, read from the ledger.

    The ledger is the state database of the ETL. If it cannot be opened, a message is printed to
    stderr and no error is raised.

    Args:
        config: Configuration that contains the ledger URL (`etl.ledger`).
        event_type: The only event type to list; None lists all.

    Returns:
        One row per event type, with the keys `type`, `hour`, `state` (such as `open`),
        `waits_for` (readable text) and `overdue_s` (seconds since the end of the hour, at least 0).
        Empty if the ledger cannot be opened.
    """
    try:
        database = open_existing_ledger(config)
    except HourmarkError as error:
        click.echo(
            f"closed buckets only, without the hours that are open: {redact(str(error))}", err=True
        )
        return []
    with database:
        found = frontiers(database, config.parsing.bucket_seconds)
        waiting = blockers(database, config.parsing.bucket_seconds)
        seen_ms = last_heartbeat_ms(database)
    now_ms = SystemClock().now_ms()
    silent = describe_missing_driver(seen_ms, now_ms)
    selected = [f for f in found if event_type in (None, f.event_type)]
    return [_frontier_row(f, waiting.get(f.event_type), silent, now_ms) for f in selected]


def _frontier_row(
    f: Frontier, wait: Blocker | None, silent: str | None, now_ms: int
) -> dict[str, Any]:
    overdue_s = (now_ms - f.hour.end_ms) / 1000
    words = "; ".join(wait.what) if wait is not None and wait.hour == f.hour else ""
    if silent and overdue_s >= 0:
        words = f"{silent}; then: {words}" if words else silent
    words = words or (
        f"its end, in {format_duration(-overdue_s)}" if overdue_s < 0 else "the closer's next poll"
    )
    short = words if len(words) <= _WAITS_SHOWN else f"{words[:_WAITS_SHOWN]} …"
    return {
        "type": f.event_type,
        "hour": str(f.hour),
        "state": f.state.value,
        "waits_for": short,
        "overdue_s": round(max(0.0, overdue_s), 1),
    }


def _closed_on_storage(config: Config, event_type: str, hour: Hour) -> Explanation | None:
    # None if the bucket is not closed, or if storage does not respond either.
    try:
        return explain_closed_hour(
            event_type, hour, read_manifest(open_storage(config.storage), event_type, hour)
        )
    except HourmarkError:
        return None


def _facts(
    database: Database, config: Config, event_type: str, hour: Hour, now_ms: int
) -> HourFacts:
    length_s = config.parsing.bucket_seconds
    known = {f.event_type: f for f in frontiers(database, length_s)}
    return HourFacts(
        event_type=event_type,
        hour=hour,
        now_ms=now_ms,
        deadline_seconds=config.etl.deadline_seconds,
        frontier=known.get(event_type),
        known_types=tuple(known),
        reporters=tuple(reporters(database)),
        blocker=blockers(database, length_s).get(event_type),
        override=overrides(database).get(event_type),
        set_aside=count_unreviewed_records(database, event_type),
        manifest=overview.read_closed_manifest(database, event_type, hour),
        driver_heartbeat_ms=last_heartbeat_ms(database),
    )


def _confirm(facts: HourFacts, yes: bool) -> None:
    answer = explain(facts)
    click.echo(f"{answer.event_type} {answer.hour}: {answer.summary}", err=True)
    explanations = {
        "open": "closing it by force takes as it is, and names in the manifest:",
        "sealed": "it is sealed already: the override gives up what a lost staged file held of "
        "it, if Kafka no longer has that, "
        "and rows that cannot be written, and nothing else; then it closes as "
        "forced, and names them",
    }
    if answer.state in explanations:
        click.echo(explanations[answer.state], err=True)
        no_bucket = answer.state == "open" and facts.missing_driver is not None
        for reason in answer.reasons[no_bucket:]:  # without the first, which is about the driver
            click.echo(f"  {reason.what}", err=True)
    _ask(yes)


def _confirm_all(database: Database, bucket_seconds: int, yes: bool) -> None:
    found = frontiers(database, bucket_seconds)
    oldest = min(found, key=lambda f: f.hour, default=None)
    if oldest is not None:
        click.echo(
            f"{len(found)} types, each with its next hour; the oldest is "
            f"{oldest.event_type} {oldest.hour}",
            err=True,
        )
    _ask(yes)


def is_stdin_terminal() -> bool:
    return sys.stdin.isatty()


def _ask(yes: bool) -> None:
    if not yes:
        if not is_stdin_terminal():
            raise UsageError(
                "an override cannot be taken back once it is carried out: answer on a "
                "terminal, or give --yes"
            )
        click.confirm("Close it by force?", abort=True, err=True)
