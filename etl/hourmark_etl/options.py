"""Arguments, options and output helpers that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from hourmark.config.loading import Config
from hourmark.errors import UsageError
from hourmark.records.hours import Hour

_HOUR_S: Final = 3600

type_argument = click.argument("event_type", metavar="TYPE")
hour_argument = click.argument("hour", metavar="HOUR")
shard_option = click.option(
    "--shard",
    "shards",
    multiple=True,
    help="Stage only this shard (repeatable). Only the driver of the shard `default` closes buckets. "
    "Default: all shards.",
)


def parse_hour(label: str, config: Config) -> Hour:
    """Parse the HOUR argument of a command that works on one bucket.

    Args:
        label: The hour as written on the command line, for example `2026-01-31T12`, or
            `2026-01-31T12:05` if buckets are shorter than an hour.
        config: Provides the bucket length, `parsing.bucket_seconds`.

    Returns:
        The bucket that starts at this time.

    Raises:
        UsageError: The text is not the start of a bucket of this length, or it names a whole hour
            although buckets are shorter.
    """
    hour = parse_first_hour(label, config)
    if ":" not in label and hour.length_s < _HOUR_S:
        raise UsageError(
            f"HOUR {label!r} is a whole hour, but a bucket has {hour.length_s} s "
            f"(parsing.bucket_seconds); add the minute, such as {hour}. "
            f"`hourmark bucket ls` and `hourmark bucket cat` accept --from {label} --to {label}"
        )
    return hour


def parse_first_hour(label: str, config: Config) -> Hour:
    """Parse the option `--from`.

    Args:
        label: Start of a bucket, as in `parse_hour`; or a whole hour, such as `2026-01-31T12`,
            also if buckets are shorter.
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


def parse_last_hour(label: str, config: Config) -> Hour:
    """Parse the option `--to`.

    Args:
        label: See `parse_first_hour`.
        config: Provides the bucket length, `parsing.bucket_seconds`.

    Returns:
        The bucket that starts at this time. If the label is a whole hour and buckets are shorter,
        the last bucket of this hour.

    Raises:
        UsageError: The text is not the start of a bucket of this length.
    """
    hour = parse_first_hour(label, config)
    if ":" in label:
        return hour
    return Hour(hour.start_s + _HOUR_S - hour.length_s, hour.length_s)


def print_lines(lines: Iterable[object]) -> None:
    """Print each item to standard output, on a line of its own.

    Args:
        lines: Objects to print, converted by `str`.
    """
    for line in lines:
        click.echo(line)
