"""What the commands have in common on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from hourmark.config import Config
from hourmark.errors import UsageError
from hourmark.hours import Hour

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
shard_option = click.option(
    "--shard", "shards", multiple=True, help="Stage this shard only (repeatable). The driver with `default` closes. Default: all."
)


def hour_of(label: str, config: Config) -> Hour:
    """The hour as it is written on the command line; UsageError where it is none of the root's length."""
    try:
        return Hour.parse(label, config.parsing.bucket_seconds)
    except ValueError as error:
        raise UsageError(f"HOUR {label!r}: {error} (parsing.bucket_seconds is {config.parsing.bucket_seconds})") from error


def say_json(value: object) -> None:
    """For programs."""
    click.echo(json.dumps(value, indent=1))


def say(lines: Iterable[object]) -> None:
    """For people."""
    for line in lines:
        click.echo(line)
