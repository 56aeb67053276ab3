"""`hourmark bucket force`: orders that a bucket is closed although data is missing.

The order is a row of the ledger, so it can be given while Kafka, storage and the driver are down.
"""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.errors import UsageError
from hourmark.printing import json_option, name_some, print_json
from hourmark.records.hours import Hour
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.heartbeat import read_driver_signs
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.ledger.overrides import (
    blockers,
    check_override_effective,
    is_override_ineffective,
    put_override,
    put_overrides,
)
from hourmark_etl.operators.explain import HourFacts, explain_hour
from hourmark_etl.operators.hour_facts import read_hour_facts
from hourmark_etl.options import parse_hour

_TYPES_SHOWN: Final = 20


@click.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.argument("hour", metavar="[HOUR]", required=False)
@click.option(
    "--reason",
    metavar="TEXT",
    required=True,
    help="Reason for closing the bucket, which is stored permanently in its manifest.",
)
@click.option(
    "--all-types",
    is_flag=True,
    help="Close the next hour of every type, if audit records or host reports were lost.",
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
    """Force the next bucket of a type to be closed although events are missing (grade `forced`).

    HOUR must be the next hour of TYPE to be closed. The manifest of the bucket states what is
    missing: sources that have not caught up, events that audit records count, and records that the
    mirror did not copy. Events that arrive later become late events of later buckets. The command
    deletes nothing, and never changes a closed bucket.

    The command stores an order, which the running driver (`hourmark etl run`) executes at its next
    poll. If the hour is already sealed (its content is fixed), the order only permits closing it
    without lost staged files and rows that cannot be written.

    If audit records or host reports were lost, all types are affected. In this case, use --all-types
    instead of TYPE and HOUR to close the next hour of each type.

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
            facts = read_hour_facts(database, config, event_type, parsed_hour, now_ms)
            if (
                facts.frontier is not None and facts.frontier.hour == parsed_hour
            ):  # `put_override` refuses any other hour
                check_override_effective(facts.frontier, facts.blocker)
                _confirm(facts, yes)
            _check_bucket(facts)
            put_override(database, event_type, parsed_hour, reason, by, now_ms)
            ordered = {event_type: parsed_hour}
        else:
            _confirm_all(database, length_s, yes)
            ordered = put_overrides(database, length_s, reason, by, now_ms)
        silent = read_driver_signs(database).describe_missing(now_ms)
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
        for line in _describe_orders(ordered, sealed):
            click.echo(line)
    if silent:
        click.echo(f"{silent}; `hourmark etl run` executes the override", err=True)


def _describe_orders(ordered: Mapping[str, Hour], sealed: Collection[str]) -> Iterator[str]:
    groups: dict[tuple[Hour, bool], list[str]] = {}
    for name, hour in sorted(ordered.items()):
        groups.setdefault((hour, name in sealed), []).append(name)
    for (hour, is_sealed), names in groups.items():
        what = "already sealed, and closes with its fixed content" if is_sealed else "ordered"
        shows = f"`hourmark bucket why {names[0]} {hour}` shows its progress"
        if len(names) > 1:
            shows = "`hourmark bucket ls --state open` shows their progress"
        yield f"{name_some(names, _TYPES_SHOWN)} {hour}: {what}; {shows}"


def _check_bucket(facts: HourFacts) -> None:
    # `put_override` cannot tell a closed hour from one that has no bucket.
    f = facts.frontier
    if f is None or not facts.hour < f.hour:
        return
    answer = explain_hour(facts)
    which = {
        "skipped": "was skipped because it has no events, so it has no bucket to close",
        "later": answer.summary,
        "before-first": answer.summary,
    }
    if answer.state in which:
        raise UsageError(
            f"{facts.event_type} {facts.hour} {which[answer.state]}; no override was stored. The "
            f"next hour of {facts.event_type} to close is {f.hour}: `hourmark bucket why "
            f"{facts.event_type} {f.hour}` shows what it waits for"
        )


def _confirm(facts: HourFacts, yes: bool) -> None:
    answer = explain_hour(facts)
    click.echo(f"{answer.event_type} {answer.hour}: {answer.summary}", err=True)
    explanations = {
        "open": "closing it by force accepts the following, and records it in the manifest:",
        "sealed": "it is already sealed. The override only permits closing it without lost staged "
        "files whose records Kafka no longer has, and without rows that cannot be written. "
        "It then closes as forced, and its manifest lists them",
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
                "an override cannot be undone after it was executed: confirm on a terminal, or "
                "use --yes"
            )
        click.confirm("Close it by force?", abort=True, err=True)
