"""`hourmark tail trace`: where a line of a file is, on its log host."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from hourmark.config import config_file_option, load_config
from hourmark.errors import UsageError
from hourmark.printing import json_option, printable, say_json
from hourmark_producer.trace import Stage, Trace, trace_line

_ROTATED: Final = re.compile(r"([.-][0-9]+)*\.(gz|bz2|xz|zst)$")  # what logrotate and gzip add to a name
_TOLD: Final = {
    Stage.NOT_FOLLOWED: (
        "not followed: the checkpoint knows no such file",
        "does a pattern of tailer.sources name it, and has the tailer run since?",
    ),
    Stage.NO_SUCH_LINE: ("no such line: the file ends before it", "count from 1, in the file as it is now"),
    Stage.TRUNCATED: (
        "truncated: what was read of the file stands there no more",
        "`hourmark tail status` shows losses; once the tailer has found out, the lines that stand here now can be traced",
    ),
    Stage.NOT_READ: (
        "not read yet, or its line or record has no end yet",
        "`hourmark tail status` says whether the tailer runs, and what ails it",
    ),
    Stage.SPOOLED: (
        "spooled: read, durable on this host, and not acknowledged yet",
        "`hourmark tail status` says whether a delivery service answers",
    ),
    Stage.ACKNOWLEDGED: (
        "acknowledged: a delivery service has it, and Kafka before that",
        "`hourmark trace --from` what --json prints here, where the clusters can be reached, says when, and where it is now",
    ),
    Stage.ACKNOWLEDGED_OR_SKIPPED: (
        "acknowledged, or passed over: bytes of this source were skipped, as copies or by a setting",
        "`hourmark trace --from` what --json prints here, where the clusters can be reached; the tailer's log names files that "
        "it passed over",
    ),
    Stage.PACKED: (
        "packed: the checkpoint does not know what this was packed from; it lets go of a file that is gone, once all of it is "
        "acknowledged or counted as lost",
        "where the clusters can be reached, by the path that it was read under: {question}; --since and --until tell it from "
        "others of that name",
    ),
}  # fmt: skip


@click.command()
@click.argument("place", metavar="FILE[:LINE]")
@config_file_option("config_file")
@click.option("--offset", type=click.IntRange(min=0), help="The byte where the line begins, instead of its number.")
@json_option
@click.pass_context
def trace(context: click.Context, place: str, config_file: Path | None, offset: int | None, as_json: bool) -> None:
    """Show how far a line has come on this host, whether or not the tailer runs. Changes nothing.

    FILE as it is named now; LINE from 1, the first where none is given. Exit code 1 where there is no such line to deliver.

    \b
    Examples:
      hourmark tail trace /var/log/app/app.log:1734
      hourmark tail trace /var/log/app/app.log.2.gz:1734
      hourmark tail trace /var/log/app/app.log.1 --offset 98211 --json
    """
    parent = context.parent.params if context.parent else {}
    config = load_config(config_file or parent.get("config_file"))
    path, line = placed(place)
    if offset is not None and line is not None:
        raise UsageError("name a line or --offset, not both")
    found = trace_line(config.tailer.state_dir, path, line=line, offset=offset)
    if as_json:
        say_json({**dataclasses.asdict(found), "stage": found.stage.value, "next": _next_step(found)})
    else:
        click.echo("\n".join(map(printable, _text(found))))
    if not found.stage.is_found:
        raise SystemExit(1)


def placed(place: str) -> tuple[Path, int | None]:
    """The file and the line; a file that is named with a colon and a number is that file. UsageError."""
    match = re.fullmatch(r"(.+):([0-9]+)", place, re.DOTALL)
    if match is None or Path(place).exists():
        return Path(place), None
    if int(match[2]) < 1:
        raise UsageError("lines are counted from 1")
    return Path(match[1]), int(match[2])


def _text(found: Trace) -> Iterator[str]:
    yield _TOLD[found.stage][0]
    if found.file_id is not None:
        at = "" if found.offset is None else f", offset {found.offset}"
        yield (
            f"  {found.path}, source {found.source}: host id {found.host_id}, file {found.file_id}, "
            f"generation {found.generation}{at}"
        )
    if found.losses:
        yield f"! losses were noted {found.losses} times under this file's names: `hourmark tail status` shows them"
    yield f"next: {_next_step(found)}"


def _next_step(found: Trace) -> str:
    was = _ROTATED.sub("", str(Path(found.path).absolute()))
    return _TOLD[found.stage][1].replace("{question}", f"`hourmark trace {found.host_id}:{was}:{found.offset}`")
