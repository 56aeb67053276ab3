"""`hourmark types`: apply, list, check, try."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from hourmark.clock import SystemClock
from hourmark.config import Config, config_option
from hourmark.errors import UsageError
from hourmark.hours import Hour
from hourmark.printing import json_option, say_json
from hourmark_declare.folder import declarations, dir_option
from hourmark_declare.try_cli import try_

_first_hour_option = click.option(
    "--first-hour", help="Where new types' chains of buckets begin, e.g. 2026-11-21T05. Default: now."
)


@click.group()
def types() -> None:
    """Event types and sources: check the declarations, try them on lines, apply them, list what is applied."""


types.add_command(try_)


@types.command()
@dir_option
@json_option
@config_option
def check(config: Config, folder: Path | None, as_json: bool) -> None:
    """Check declarations without any server.

    Example:  hourmark types check --dir types
    """
    declared = declarations(folder or config.types.dir)
    if as_json:
        say_json({"types": [t.name for t in declared.types], "sources": [s.name for s in declared.sources]})
    else:
        click.echo(f"{len(declared.types)} types and {len(declared.sources)} sources are well declared")


@types.command()
@dir_option
@json_option
@_first_hour_option
@click.option("--remove", is_flag=True, help="Leave out types and sources in force that are not declared here.")
@click.option("--refuse-lines", is_flag=True, help="Lines that are events now may become dead letters: no program writes them.")
@config_option
def apply(config: Config, folder: Path | None, first_hour: str | None, remove: bool, refuse_lines: bool, as_json: bool) -> None:
    """Register schemas, make topics, add frontier rows, publish the rules revision. Can be repeated.

    Refused, and nothing changed, where closed buckets could not be read any more, or where lines that are events under the rules
    in force would become dead letters: a default or a field that was taken away, a type that a source lost.

    \b
    Examples:
      hourmark types apply --dir types --first-hour 2026-11-21T05
      hourmark types apply --refuse-lines
    """
    from hourmark_declare.apply import apply as apply_types  # needs Kafka's client; `check` does not
    from hourmark_declare.servers import servers

    declared, first = declarations(folder or config.types.dir), _first_hour(config, first_hour)
    with servers(config, _say) as outside:
        applied = apply_types(outside, declared, first, may_remove=remove, may_refuse=refuse_lines)
    if as_json:
        say_json(dataclasses.asdict(applied))
    else:
        click.echo(f"rules revision {applied.revision} is in force for {len(declared.types)} types")


@types.command()
@click.option("--adopt", is_flag=True, help="The ledger is an older copy: take from hourmark.types what it lacks.")
@_first_hour_option
@json_option
@config_option
def repair(config: Config, adopt: bool, first_hour: str | None, as_json: bool) -> None:
    """Write again what the topic hourmark.types or the schema registry lost, under the same names and ids. Can be repeated.

    The ledger has all of it. Rules in force stay as they are; declarations are not read. An empty registry is given the same
    ids again; one that gives them to other schemas is refused.

    \b
    Examples:
      hourmark types repair --json
      hourmark types repair --adopt --first-hour 2026-11-21T05
    """
    from hourmark_declare.apply import repair as repair_types
    from hourmark_declare.servers import servers

    with servers(config, _say) as outside:
        repaired = repair_types(outside, _first_hour(config, first_hour), may_adopt=adopt)
    if as_json:
        say_json(dataclasses.asdict(repaired))
    else:
        click.echo(f"rules revision {repaired.revision} is in force" if repaired.revision else "no types were ever applied")


@types.command(name="list")
@json_option
@config_option
def list_types(config: Config, as_json: bool) -> None:
    """List the types in force: the latest rules revision at the edge.

    Example:  hourmark types list --json
    """
    from hourmark_declare.servers import applied_rules

    rules = applied_rules(config)
    if rules is None:
        raise UsageError("no types are applied yet; begin with `hourmark types apply --dir types`")
    rows = [
        {"type": name, "schema_id": t.schema_id, "digest": t.digest, "partitions": t.declaration.partitions}
        for name, t in sorted(rules.types.items())
    ]
    if as_json:
        say_json({"revision": rules.id, "types": rows, "sources": sorted(rules.sources)})
        return
    click.echo(f"rules revision {rules.id}; sources: {', '.join(sorted(rules.sources)) or 'none'}")
    for row in rows:
        click.echo(f"{row['type']:40} schema {row['schema_id']:<6} {row['partitions']} partitions  {row['digest']}")


def _first_hour(config: Config, label: str | None) -> Hour:
    length_s = config.parsing.bucket_seconds
    try:
        return Hour.parse(label, length_s) if label else Hour.of(SystemClock().now_ms(), length_s)
    except ValueError as error:
        raise UsageError(f"--first-hour: {error}") from error


def _say(line: str) -> None:
    click.echo(line, err=True)
