"""`hourmark types try`: shows the events and dead letters that sample lines would become."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import click

from hourmark.clock import SystemClock
from hourmark.config.groups import TailedSource
from hourmark.config.loading import Config, config_option
from hourmark.errors import UsageError
from hourmark.printing import json_option
from hourmark.records.ranges import LINE_BYTES_MAX
from hourmark.rules.event_types import Declarations
from hourmark_declare.folder import dir_option, load_declarations
from hourmark_declare.line_trial import LineResult, LineTrial, ReadContext, select_source
from hourmark_declare.samples import SampleLines
from hourmark_declare.zones import validate_zone
from hourmark_delivery_service.parsing.times.timestamps import rfc3339_us

_LINES_MAX: Final = 10_000


@click.command("try")
@click.option(
    "--lines",
    "file",
    type=click.File("rb"),
    required=True,
    help="File with sample lines; - reads them from stdin.",
)
@click.option("--source", help="Declared source of the lines. Default: the only declared source.")
@click.option(
    "--type", "event_type", help="Try only this type, in the first source that contains it."
)
@click.option(
    "--observed-at",
    help="Time at which old sample lines were read, such as 2026-11-21T05:00:00Z. Default: now.",
)
@click.option(
    "--zone",
    help="Time zone of times that contain no zone. Default: the zone of the source in "
    "[[tailer.sources]], or UTC.",
)
@click.option(
    "--limit",
    default=_LINES_MAX,
    show_default=True,
    type=click.IntRange(1),
    help="Maximum number of lines to read.",
)
@dir_option
@json_option
@config_option
def try_(
    config: Config,
    file: BinaryIO,
    source: str | None,
    event_type: str | None,
    observed_at: str | None,
    zone: str | None,
    limit: int,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Show the events and dead letters that sample lines would become. No server is needed.

    The command parses each line as the delivery service does. If the configuration contains the
    source in `[[tailer.sources]]`, its settings `record_start`, `format` and `zone` apply. The
    command exits with code 1 if any line would become a dead letter.

    \b
    Examples:
      hourmark types try --lines sample.log --source app
      hourmark types try --lines /var/log/syslog --observed-at 2026-11-21T05:00:00Z --json
    """

    declared = load_declarations(folder or config.types.dir)
    lines = itertools.islice(_lines(file), limit)
    wanted = select_source(declared, source, event_type)
    tailed = next(
        (one for one in config.tailer.sources if one.name == wanted.name),
        TailedSource(name=wanted.name),
    )
    context = ReadContext(
        observed_at_ms=_observed_at_ms(observed_at),
        zone=validate_zone(zone or tailed.zone),
        host=socket.gethostname(),
        record_start=tailed.record_start or "",
        format="cri" if tailed.format == "cri" else "",
    )
    trial = LineTrial.from_declarations(declared._replace(sources=[wanted]))
    parse = trial.parse_records if context.record_start or context.format else trial.parse_lines
    if _show(parse(wanted.name, lines, context), as_json=as_json):
        raise SystemExit(1)


def read_sample_lines(declared: Declarations, file: BinaryIO, source: str | None) -> SampleLines:
    """Read up to 10,000 sample lines of a declared source from a file.

    The context of the lines is the current time, the name of this host and the time zone UTC.

    Args:
        declared: Declarations of types and sources.
        file: Binary file to read.
        source: Name of the declared source; None to use the only one.

    Returns:
        The lines without line feeds, with the name of their source and their context.

    Raises:
        UsageError: The source is not declared, or `source` is None and the number of declared
            sources is not one.
    """
    context = ReadContext(
        observed_at_ms=SystemClock().now_ms(), zone="UTC", host=socket.gethostname()
    )
    lines = [*itertools.islice(_lines(file), _LINES_MAX)]
    return SampleLines(
        source=select_source(declared, source, None).name, lines=lines, context=context
    )


def _lines(file: BinaryIO) -> Iterator[bytes]:
    # Yield lines without their line feeds, cut shortly after the hard length limit.
    while line := file.readline(LINE_BYTES_MAX + 2):
        yield line.removesuffix(b"\n")
        while not line.endswith(b"\n") and len(line) == LINE_BYTES_MAX + 2:
            line = file.readline(LINE_BYTES_MAX + 2)


def _show(tried: Iterable[LineResult], *, as_json: bool) -> bool:
    types, reasons = collections.Counter[str](), collections.Counter[str]()
    for one in tried:
        if one.reason is not None:
            reasons[one.reason] += 1
        else:
            types[one.type or "no record"] += 1
        click.echo(json.dumps(dataclasses.asdict(one)) if as_json else _format_result(one))
    if as_json:
        click.echo(json.dumps({"events": types, "dead_letters": reasons}))
    else:
        click.echo(f"events: {_sums(types)}; dead letters: {_sums(reasons)}")
    return bool(reasons)


def _format_result(one: LineResult) -> str:
    if one.reason is not None:
        return f"{one.line}: dead letter {one.reason}: {one.detail}"
    if one.type is None:
        return f"{one.line}: no record, because the line is blank"
    return (
        f"{one.line}: {one.type} {one.time} {one.host} {json.dumps(one.fields, ensure_ascii=False)}"
    )


def _sums(counts: collections.Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def _observed_at_ms(text: str | None) -> int:
    if text is None:
        return SystemClock().now_ms()
    micros = rfc3339_us(text.encode())
    if micros is None or micros < 0:
        raise UsageError(f"--observed-at {text}: allowed: a time such as 2026-11-21T05:00:00Z")
    return micros // 1000
