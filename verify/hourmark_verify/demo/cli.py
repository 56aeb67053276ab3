"""`hourmark demo`."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import stack_state_dir
from hourmark.errors import UsageError
from hourmark_infra.jars.cache import print_progress
from hourmark_infra.stack.options import Clusters, clusters_option
from hourmark_verify.demo import outcome
from hourmark_verify.demo.demo import Demo, DemoOptions
from hourmark_verify.demo.log_lines import TRACK_PLAYED

_LINES_FILE = click.Path(
    path_type=Path, exists=True, dir_okay=False, readable=True, resolve_path=True
)


@click.command()
@click.option(
    "--lines",
    type=_LINES_FILE,
    multiple=True,
    metavar="FILE …",
    help="Also send the lines of these files.",
)
@click.argument("more", type=_LINES_FILE, nargs=-1, metavar="")
@click.option(
    "--rate",
    type=click.IntRange(1, 20_000),
    default=200,
    show_default=True,
    help="Number of structured events per second.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Seed for the random content of the structured events.",
)
@click.option(
    "--buckets",
    type=click.IntRange(1, 60),
    default=3,
    show_default=True,
    help="Number of non-empty buckets of each type to wait for.",
)
@clusters_option(2, kept=False)
@click.option(
    "--keep", is_flag=True, help="Keep the servers running after the demo, to inspect the result."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def demo(
    lines: tuple[Path, ...],
    more: tuple[Path, ...],
    rate: int,
    seed: int,
    buckets: int,
    clusters: Clusters | None,
    keep: bool,
    as_json: bool,
) -> None:
    """Run the whole pipeline on its own local stack, in about five minutes.

    The demo tails log files, delivers and mirrors their events, and closes them into one-minute
    buckets. Meanwhile, it kills a broker. Finally, the judge, which shares no code with the
    pipeline, compares every line with the buckets.

    The exit code is 1 if a line was lost, duplicated or altered, or if a valid line became a dead
    letter.

    \b
    Examples:
      hourmark demo
      hourmark demo --clusters 1 --buckets 1
      hourmark demo --lines /var/log/syslog /var/log/dpkg.log --keep
    """
    if more and not lines:
        raise UsageError(
            f"unexpected argument {more[0]}: name the files whose lines to send after --lines"
        )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # same effect as Ctrl-C
    options = DemoOptions(
        lines=(*lines, *more),
        rate=rate,
        seed=seed,
        buckets=buckets,
        clusters=clusters or 2,
        keep=keep,
    )
    result = Demo(stack_state_dir() / "demo", options, SystemClock(), print_progress).run()
    print_progress(result.report.as_text())
    click.echo(json.dumps(result.outcome) if as_json else outcome.as_text(result.outcome))
    for fault in result.faults:
        print_progress(f"the demo FAILED: {fault}")
    print_progress(
        "\nThe stack is "
        f"{'still running' if keep else 'stopped; its data is kept until the next demo'}. "
        "To inspect the result:"
    )
    up, *others = inspection_commands(
        stack_state_dir() / "demo",
        result.config_file,
        result.expectations_file,
        result.example_hour,
    )
    for command in others if keep else (up, *others):
        print_progress(f"  {command}")
    sys.exit(1 if result.faults else 0)


def inspection_commands(
    stack_home: Path, config: Path, expectations: Path, hour: str
) -> tuple[str, ...]:
    """Return shell commands that start the stack, inspect its buckets, and stop it.

    Args:
        stack_home: Home folder of the stack, the value of HOURMARK_HOME.
        config: Configuration file of the demo.
        expectations: Input file of `hourmark judge`, which compares log files with buckets.
        hour: Label of a non-empty bucket of type track-played.

    Returns:
        Commands with quoted paths, ready to be copied. The first one starts the stack, and the last
        one stops it.
    """
    in_home = f"HOURMARK_HOME={shlex.quote(str(stack_home))} ./hourmark"
    configured = ("--config", str(config))
    inside = (
        ("bucket", "ls", *configured),
        ("bucket", "cat", TRACK_PLAYED, hour, "--limit", "3", *configured),
        ("judge", "check", str(expectations)),
    )
    return (
        f"{in_home} up",
        *(f"./hourmark {shlex.join(words)}" for words in inside),
        f"{in_home} down",
    )
