"""Arguments, options and output helpers that several commands share."""

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


def parse_hour(label: str, config: Config) -> Hour:
    """Parse the HOUR argument of a command.

    Args:
        label: The hour as written on the command line, for example `2026-01-31T12`.
        config: Provides the bucket length, `parsing.bucket_seconds`.

    Returns:
        The bucket that starts at this time.

    Raises:
        UsageError: The text is not the start of a bucket of this length.
    """
    try:
        return Hour.parse(label, config.parsing.bucket_seconds)
    except ValueError as error:
        raise UsageError(
            f"HOUR {label!r}: {error} (parsing.bucket_seconds is {config.parsing.bucket_seconds})"
        ) from error


def print_lines(lines: Iterable[object]) -> None:
    """Print each item to standard output, on a line of its own.

    Args:
        lines: Objects to print, converted by `str`.
    """
    for line in lines:
        click.echo(line)
