"""Command group `hourmark types`: apply, list, check, repair and try."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.errors import UsageError
from hourmark.printing import json_option, print_json
from hourmark.records.hours import Hour
from hourmark.rules.event_types import Declarations
from hourmark_declare.folder import dir_option, load_declarations
from hourmark_declare.try_cli import read_sample_lines, try_

if TYPE_CHECKING:
    from hourmark_declare.samples import ReparsedDeadLetters


@click.group()
def types() -> None:
    """Manage event types and sources: check, try, apply, repair and list declarations."""


types.add_command(try_)


@types.command()
@dir_option
@click.option(
    "--live",
    is_flag=True,
    help="Also parse recent dead letters at the edge again with these declarations.",
)
@click.option(
    "--since",
    default="1h",
    show_default=True,
    help="With --live: start of the period, such as 2026-11-21T05:30, or 10m or 3d before now.",
)
@json_option
@config_option
def check(config: Config, folder: Path | None, live: bool, since: str, as_json: bool) -> None:
    """Check the declarations without a server or, with --live, against recent dead letters.

    With --live, the command parses the dead letters of the last hour again with these declarations.
    It exits with code 1 if any of them would become a dead letter again. In this case, a source or
    field is wrong, either in the declarations or in the program that writes the lines. To see these
    lines, use `hourmark dead-letters show`.

    \b
    Examples:
      hourmark types check --dir types
      hourmark types check --live --since 10m
    """
    declared = load_declarations(folder or config.types.dir)
    again = _parsed_again(config, declared, since) if live else None
    if as_json:
        found = (
            {} if again is None else {"dead_letters": [dataclasses.asdict(kind) for kind in again]}
        )
        print_json(
            {
                "types": [t.name for t in declared.types],
                "sources": [s.name for s in declared.sources],
                **found,
            }
        )
    else:
        click.echo(
            f"{len(declared.types)} types and {len(declared.sources)} sources are declared "
            "correctly"
        )
        for kind in again or ():
            click.echo(str(kind))
    if any(kind.stay_dead_letters for kind in again or ()):
        raise SystemExit(1)


def _parsed_again(config: Config, declared: Declarations, since: str) -> list[ReparsedDeadLetters]:
    from hourmark_declare.samples import reparse_dead_letters
    from hourmark_etl.operators.dead_letter_reader import RECORDS_MAX, read_dead_letters_from_topic
    from hourmark_etl.operators.dead_letter_selection import (
        DeadLetterFilter,
        FilteredDeadLetters,
        parse_time_ms,
    )

    try:
        wanted = DeadLetterFilter(since_ms=parse_time_ms(since, SystemClock().now_ms()))
    except ValueError as error:
        raise UsageError(f"--since: {error}") from error
    letters = FilteredDeadLetters(
        wanted,
        read_dead_letters_from_topic(config.kafka.edge, RECORDS_MAX, _say),
        is_complete=False,
    )
    again = reparse_dead_letters(declared, letters)
    _say(str(letters))
    return again


@types.command()
@dir_option
@json_option
@click.option(
    "--first-hour",
    help="First hour of new types, such as 2026-11-21T05. Default: the current hour, or for the first "
    "types of a ledger types.first_hour, if it is set.",
)
@click.option(
    "--remove",
    is_flag=True,
    help="Remove types and sources that were applied before but are no longer declared.",
)
@click.option(
    "--refuse-lines",
    is_flag=True,
    help="Allow lines that are events now to become dead letters.",
)
@click.option(
    "--lines",
    "sample",
    type=click.File("rb"),
    help="File with sample lines, which must still become events after the change.",
)
@click.option(
    "--source",
    help="With --lines: declared source of the lines. Default: the only declared source.",
)
@config_option
def apply(
    config: Config,
    folder: Path | None,
    first_hour: str | None,
    remove: bool,
    refuse_lines: bool,
    sample: BinaryIO | None,
    source: str | None,
    as_json: bool,
) -> None:
    """Apply the declared types and sources: register schemas, create topics, publish parsing rules.

    The command can be repeated safely. It refuses changes after which closed buckets could not be
    read, or lines that are events under the current rules would become dead letters. For example,
    it refuses to remove a default or a field, or to remove a type from a source. If you have
    changed a pattern, pass sample lines with --lines to check that they still match.

    \b
    Examples:
      hourmark types apply --dir types --first-hour 2026-11-21T05
      hourmark types apply --lines /var/log/app.log --source app
      hourmark types apply --refuse-lines
    """
    from hourmark_declare.apply import (
        apply_declarations as apply_types,  # needs Kafka's client; `check` does not
    )
    from hourmark_declare.servers import open_targets

    declared = load_declarations(folder or config.types.dir)
    if source and sample is None:
        raise UsageError("--source requires --lines, the file whose lines are from this source")
    samples = read_sample_lines(declared, sample, source) if sample else None
    with open_targets(config, _say) as targets:
        first = resolve_first_hour(config, first_hour, is_new=targets.ledger.book().latest is None)
        applied = apply_types(
            targets, declared, first, may_remove=remove, may_refuse=refuse_lines, samples=samples
        )
    if as_json:
        print_json(dataclasses.asdict(applied))
    else:
        click.echo(f"rules revision {applied.revision} is in force for {len(declared.types)} types")


@types.command()
@click.option(
    "--adopt",
    is_flag=True,
    help="After an older copy of the ledger was restored: add the types that it lacks from "
    "hourmark.types.",
)
@click.option(
    "--first-hour",
    help="With --adopt: first hour of the added types, such as 2026-11-21T05. Default: the current "
    "hour.",
)
@json_option
@config_option
def repair(config: Config, adopt: bool, first_hour: str | None, as_json: bool) -> None:
    """Restore the topic hourmark.types and the schema registry from the ledger.

    The command can be repeated safely. Names, ids and the active rules do not change, and the
    declarations are not read. If the registry is empty, the schemas get the same ids again. If the
    registry has assigned these ids to other schemas, the command fails.

    \b
    Examples:
      hourmark types repair --json
      hourmark types repair --adopt --first-hour 2026-11-21T05
    """
    from hourmark_declare.apply import repair_rules as repair_types
    from hourmark_declare.servers import open_targets

    with open_targets(config, _say) as targets:
        repaired = repair_types(targets, resolve_first_hour(config, first_hour), may_adopt=adopt)
    if as_json:
        print_json(dataclasses.asdict(repaired))
    else:
        click.echo(
            f"rules revision {repaired.revision} is in force"
            if repaired.revision
            else "no types have been applied yet"
        )


@types.command(name="list")
@json_option
@config_option
def list_types(config: Config, as_json: bool) -> None:
    """List the active event types, which the latest rules revision on the edge cluster contains.

    \b
    Example:
      hourmark types list --json
    """
    from hourmark_declare.servers import read_applied_rules

    rules = read_applied_rules(config)
    if rules is None:
        raise UsageError(
            "no types have been applied yet; start with `hourmark types apply --dir types`"
        )
    rows = [
        {
            "type": name,
            "schema_id": t.schema_id,
            "digest": t.digest,
            "partitions": t.declaration.partitions,
        }
        for name, t in sorted(rules.types.items())
    ]
    if as_json:
        print_json({"revision": rules.id, "types": rows, "sources": sorted(rules.sources)})
        return
    click.echo(f"rules revision {rules.id}; sources: {', '.join(sorted(rules.sources)) or 'none'}")
    for row in rows:
        click.echo(
            f"{row['type']:40} schema {row['schema_id']:<6} {row['partitions']} "
            f"partitions  {row['digest']}"
        )


def resolve_first_hour(config: Config, label: str | None, *, is_new: bool = False) -> Hour:
    """Return the first hourly bucket of new event types.

    Args:
        config: Configuration with `types.first_hour` and `parsing.bucket_seconds`.
        label: Value of the option `--first-hour`, such as `2026-11-21T05`; None if the option is
            not set.
        is_new: Whether no types have been applied before. `types.first_hour` is only used in this
            case.

    Returns:
        The bucket named by `label` if it is given. Otherwise, the bucket named by
        `types.first_hour` if `is_new` is True and the setting exists. Otherwise, the bucket that
        contains the current time.

    Raises:
        UsageError: The label or the setting is not a valid hour.
    """
    length_s = config.parsing.bucket_seconds
    wanted = label or (config.types.first_hour if is_new else None)
    try:
        return (
            Hour.parse(wanted, length_s)
            if wanted
            else Hour.containing(SystemClock().now_ms(), length_s)
        )
    except ValueError as error:
        raise UsageError(f"{'--first-hour' if label else 'types.first_hour'}: {error}") from error


def _say(line: str) -> None:
    click.echo(line, err=True)
