"""`hourmark dead-letters`: counts and shows input lines that could not be converted to events.

The dead letters are read from the end of their topic, or from closed buckets.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.errors import UsageError
from hourmark.printing import json_option, print_json
from hourmark_etl.operators.buckets.text import format_events, format_table
from hourmark_etl.operators.dead_letter_reader import (
    RECORDS_MAX,
    read_dead_letters_from_buckets,
    read_dead_letters_from_topic,
)
from hourmark_etl.operators.dead_letter_selection import (
    GROUPS,
    DeadLetterCount,
    DeadLetterFilter,
    FilteredDeadLetters,
    count_by,
    format_dead_letter,
    format_next_steps,
    observation_order,
    parse_time_ms,
)
from hourmark_etl.options import print_lines
from hourmark_etl.storage import open_storage

_BY: Final = ("reason", "type", "source")
_Command = Callable[..., Any]


@click.group(name="dead-letters")
def dead_letters() -> None:
    """Count or show dead letters: input lines that could not be converted to events.

    The commands read dead letters from the end of their topic on the edge cluster or, with `--from
    buckets`, from closed buckets. All times are in UTC, and are the times at which lines were
    observed. If a byte range was sent more than once, its lines may be repeated in the topic.

    \b
    Examples:
      hourmark dead-letters ls
      hourmark dead-letters ls --by reason --by host --since 2h
      hourmark dead-letters show --source app --reason wrong_field --limit 3
    """


def _options(command: _Command) -> _Command:
    for option in reversed(
        (
            click.option(
                "--from",
                "place",
                type=click.Choice(["topic", "buckets"]),
                default="topic",
                help="Where to read dead letters: the end of the topic, or closed buckets. "
                "Default: topic.",
            ),
            click.option(
                "--reason",
                multiple=True,
                help="Only dead letters with this reason, such as bad_json (repeatable).",
            ),
            click.option(
                "--type",
                "types",
                multiple=True,
                help="Only dead letters of this claimed event type (repeatable).",
            ),
            click.option(
                "--source",
                multiple=True,
                help="Only dead letters of this declared source or client (repeatable).",
            ),
            click.option(
                "--host",
                multiple=True,
                help="Only dead letters of the host with this name (repeatable).",
            ),
            click.option(
                "--since",
                help="Start of the period: 2026-11-21T05, 2026-11-21T05:30, or 2h, 30m or 3d "
                "before now.",
            ),
            click.option("--until", help="End of the period, in the format of --since."),
            click.option(
                "--records-max",
                type=click.IntRange(1, 100_000_000),
                default=RECORDS_MAX,
                show_default=True,
                help="Maximum number of the topic's newest records to read.",
            ),
        )
    ):
        command = option(command)
    return command


@dead_letters.command()
@_options
@click.option(
    "--by",
    multiple=True,
    type=click.Choice([*GROUPS]),
    help="Property by which dead letters are counted (repeatable). Default: reason, type, source.",
)
@json_option
@config_option
def ls(config: Config, by: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Count dead letters by reason, type, source, host or hour.

    \b
    Examples:
      hourmark dead-letters ls
      hourmark dead-letters ls --by host --by reason --since 2h
      hourmark dead-letters ls --by hour --source app --json
      hourmark dead-letters ls --from buckets --since 2026-11-21T00
    """
    found = _letters(config, **options)
    groups = by or _BY
    counts = count_by(groups, found)
    rows = [
        _row(groups, key, count)
        for key, count in sorted(counts.items(), key=lambda item: -item[1].letters)
    ]
    if as_json:
        print_json(
            {
                "looked_at": found.read_count,
                "back_to": found.oldest,
                "whole": found.is_complete,
                "groups": rows,
            }
        )
        return
    if rows:
        print_lines(
            format_table(rows, [*groups, "letters", "first", "last"], [*groups, "first", "last"])
        )
    click.echo(str(found), err=True)


@dead_letters.command()
@_options
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="Number of dead letters to show. The newest ones are shown.",
)
@json_option
@config_option
def show(config: Config, limit: int, as_json: bool, **options: Any) -> None:
    """Show individual dead letters, newest last: the reason, the line, and its file position.

    A line is cut after 300 characters, and bytes that are not printable are shown as \\x... At the
    end, the command prints the next step for each source and reason. With --json, it prints each
    dead letter completely, one per line.

    \b
    Examples:
      hourmark dead-letters show --limit 3
      hourmark dead-letters show --source app --reason wrong_field --json
      hourmark dead-letters show --from buckets --since 2026-11-21T05 --until 2026-11-21T06
    """
    found = _letters(config, **options)
    newest = sorted(heapq.nlargest(limit, found, key=observation_order), key=observation_order)
    if as_json:
        print_lines(format_events(iter(newest), as_json=True))
    else:
        print_lines(itertools.chain.from_iterable(format_dead_letter(letter) for letter in newest))
        print_lines(format_next_steps(newest))
    click.echo(str(found), err=True)


def _letters(
    config: Config,
    *,
    place: str,
    reason: tuple[str, ...],
    types: tuple[str, ...],
    source: tuple[str, ...],
    host: tuple[str, ...],
    since: str | None,
    until: str | None,
    records_max: int,
) -> FilteredDeadLetters:
    now_ms = SystemClock().now_ms()
    try:
        wanted = DeadLetterFilter(
            reason,
            types,
            source,
            host,
            parse_time_ms(since, now_ms) if since else 0,
            parse_time_ms(until, now_ms) if until else 1 << 62,
        )
    except ValueError as error:
        raise UsageError(f"--since, --until: {error}") from error
    read = (
        _from_buckets(config, wanted)
        if place == "buckets"
        else read_dead_letters_from_topic(config.kafka.edge, records_max, _say_progress)
    )
    return FilteredDeadLetters(wanted, read, is_complete=place == "buckets")


def _from_buckets(config: Config, wanted: DeadLetterFilter) -> Iterator[Any]:
    return read_dead_letters_from_buckets(
        open_storage(config.storage), config.parsing.bucket_seconds, wanted, _say_progress
    )


def _row(groups: tuple[str, ...], key: tuple[str, ...], count: DeadLetterCount) -> dict[str, Any]:
    return {
        **dict(zip(groups, key, strict=True)),
        "letters": count.letters,
        "first": count.first,
        "last": count.last,
    }


def _say_progress(text: str) -> None:
    click.echo(text, err=True)
