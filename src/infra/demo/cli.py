"""`hourmark demo`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType

import click

from hourmark.clock import SystemClock
from hourmark.config import home
from hourmark.errors import UsageError
from infra.demo import outcome
from infra.demo.demo import Demo, Result, Wish
from infra.demo.events import TRACK_PLAYED
from infra.jars.cache import say_on_stderr

_LINES_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, readable=True, resolve_path=True)


@click.command()
@click.option("--lines", type=_LINES_FILE, multiple=True, metavar="FILE …", help="Send the lines of these files too.")
@click.argument("more", type=_LINES_FILE, nargs=-1, metavar="")
@click.option("--rate", type=click.IntRange(1, 20_000), default=200, show_default=True, help="Structured events a second.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the structured events.")
@click.option("--buckets", type=click.IntRange(1, 60), default=3, show_default=True, help="Non-empty buckets of each type.")
@click.option("--keep", is_flag=True, help="Leave the stack up, to look inside.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def demo(lines: tuple[Path, ...], more: tuple[Path, ...], rate: int, seed: int, buckets: int, keep: bool, as_json: bool) -> None:
    """The whole path on a stack of its own, in about five minutes: real files are tailed, delivered, mirrored, and closed into
    buckets of a minute, while a broker is killed; then a judge that shares no code with any of it compares every line.

    Exit 1 if a line is lost, doubled or altered, or in dead letters though it was written whole.

    \b
    Examples:
      hourmark demo
      hourmark demo --lines /var/log/syslog /var/log/dpkg.log --keep
    """
    if more and not lines:
        raise UsageError(f"what is {more[0]} to be? Files whose lines are to be sent come after --lines")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    wish = Wish((*lines, *more), rate, seed, buckets, keep)
    result = Demo(home() / "demo", wish, SystemClock(), say_on_stderr).run()
    say_on_stderr(result.report.as_text())
    if as_json:
        click.echo(json.dumps(result.outcome))
    else:
        click.echo(outcome.as_text(result.outcome))
    _explain(result, wish)
    sys.exit(1 if result.faults else 0)


def _explain(result: Result, wish: Wish) -> None:
    for fault in result.faults:
        say_on_stderr(f"the promise was NOT kept: {fault}")
    stack_home = home() / "demo"
    up, down = f"HOURMARK_HOME={stack_home} ./hourmark up", f"HOURMARK_HOME={stack_home} ./hourmark down"
    say_on_stderr(f"\nThe stack is {'still up' if wish.keep else 'down; its data stays until the next demo'}. To look inside:")
    if not wish.keep:
        say_on_stderr(f"  {up}")
    for command in (
        "bucket ls",
        f"bucket cat {TRACK_PLAYED} {result.example_hour} --limit 3",
        f"judge check {result.expectations_file}",
    ):
        configured = command if command.startswith("judge") else f"{command} --config {result.config_file}"
        say_on_stderr(f"  ./hourmark {configured}")
    say_on_stderr(f"  {down}")


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
