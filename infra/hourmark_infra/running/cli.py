"""`hourmark run`."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import stack_state_dir
from hourmark.errors import UsageError
from hourmark.printing import json_option, launcher_command, print_json
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark_infra.components import child_environment
from hourmark_infra.jars.cache import print_progress
from hourmark_infra.java.find import export_java_home
from hourmark_infra.running.closed_buckets import describe_buckets
from hourmark_infra.running.run import Run, RunOutcome
from hourmark_infra.stack.options import Clusters, clusters_option

_FOLDER = Path("pipeline")


@click.command()
@click.option(
    "--once",
    is_flag=True,
    help="Deliver what the files hold now, wait until their buckets are closed, end.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Default: {_FOLDER / 'hourmark.toml'}, of `hourmark init`.",
)
@click.argument("logs", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@clusters_option(1)
@click.option("--yes", is_flag=True, help="Take what is proposed for FILE without asking.")
@json_option
def run(
    once: bool,
    file: Path | None,
    logs: tuple[Path, ...],
    clusters: Clusters | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Run service, tailer and ETL together, supervised, with one log on stderr; with log files named, propose their types first.

    Where the types declare the canary (`hourmark canary declaration`), it runs too, and is watched; with --once it does not.
    Where the configuration names no Kafka, the local stack is started, and stays up; a new one has one cluster and no mirror.
    Ctrl-C ends the components; killed at any moment, the next run goes on. --once exits when each line that is
    there now is in a closed bucket or a dead letter.

    \b
    Examples:
      hourmark run --once /var/log/dpkg.log     from a log file to closed buckets
      hourmark run                              what `hourmark init` wrote into ./pipeline
      hourmark run --config hourmark.toml       another configuration, also with servers of your own
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # as Ctrl-C
    if logs:
        file = _propose_configuration(logs, file, yes=yes)
    export_java_home()
    running = Run(
        stack_state_dir(),
        (file or _FOLDER / "hourmark.toml").absolute(),
        SystemClock(),
        print_progress,
        clusters,
    )
    try:
        if not once:
            running.for_ever()
        outcome = running.once()
    except KeyboardInterrupt:
        print_progress("ending the components; what was begun is gone on with by the next run")
        sys.exit(130)
    finally:
        running.stop()
    _print_outcome(outcome, as_json=as_json)


def _propose_configuration(logs: tuple[Path, ...], file: Path | None, *, yes: bool) -> Path:
    """The configuration that `hourmark init` writes for these files, once it was agreed to."""
    if file is not None:
        raise UsageError(
            f"--config {file} and files to propose a configuration for exclude each "
            "other; leave one out"
        )
    written = _FOLDER / "hourmark.toml"
    before = written.read_bytes() if written.exists() else b""
    command = [
        sys.executable,
        "-m",
        "hourmark",
        "init",
        *map(str, logs),
        *(["--yes"] if yes else []),
    ]
    done = subprocess.run(command, env=child_environment(), stdout=sys.stderr.fileno(), check=False)
    if done.returncode != 0 or not written.exists() or written.read_bytes() == before:
        sys.exit(done.returncode or 1)  # it said why, or was not agreed to
    return written


def _print_outcome(outcome: RunOutcome, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "seconds": round(outcome.seconds, 1),
                "tailed": outcome.tailed,
                "buckets": outcome.buckets,
                "config": str(outcome.config),
            }
        )
        return
    for line in describe_outcome(outcome):
        click.echo(line)


def describe_outcome(outcome: RunOutcome) -> Iterator[str]:
    """What it came to, and commands to look inside, for copying: whatever the paths are."""
    yield from describe_buckets(outcome.buckets)
    where = (
        "in one of these, or a dead letter"
        if outcome.buckets
        else "where an earlier run has put it"
    )
    yield f"after {outcome.seconds:.0f} s every line is {where}; to look inside:"
    configured = ("--config", str(outcome.config))
    of_lines = [row for row in outcome.buckets if row["type"] != DEAD_LETTERS.name]
    for row in (of_lines or outcome.buckets)[:1]:
        yield (
            f"  {launcher_command()} "
            f"{shlex.join(('bucket', 'cat', row['type'], row['hour'], '--limit', '3', *configured))}"
        )
    if len(of_lines) < len(outcome.buckets):
        yield f"  {launcher_command()} {shlex.join(('dead-letters', 'show', *configured))}"
    yield f"  {launcher_command()} {shlex.join(('bucket', 'ls', *configured))}"
    yield f"  {launcher_command()} down  # stops the servers"
