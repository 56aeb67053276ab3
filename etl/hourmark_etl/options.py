"""What the commands have in common on the command line."""

from __future__ import annotations

from collections.abc import Iterable

import click

from hourmark.config.loading import Config
from hourmark.errors import UsageError
from hourmark.records.hours import Hour

type_argument = click.argument("event_type", metavar="TYPE")
hour_argument = click.argument("hour", metavar="HOUR")
shard_option = click.option(
    "--shard",
    "shards",
    multiple=True,
    help="Stage this shard only (repeatable). The driver with `default` closes. Default: all.",
)


def hour_of(label: str, config: Config) -> Hour:
    """The hour as it is written on the command line; UsageError where it is none of the root's
    length.
    """
    try:
        return Hour.parse(label, config.parsing.bucket_seconds)
    except ValueError as error:
        raise UsageError(
            f"HOUR {label!r}: {error} (parsing.bucket_seconds is {config.parsing.bucket_seconds})"
        ) from error


def say(lines: Iterable[object]) -> None:
    """Human-readable."""
    for line in lines:
        click.echo(line)
