"""Command `hourmark run`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import click

from hourmark.clock import SystemClock
from hourmark.config.groups import find_tailed_source
from hourmark.config.loading import load_config, stack_config_file, stack_state_dir
from hourmark.errors import ConfigError, Unavailable, UsageError
from hourmark.printing import json_option, launcher_command, name_some, print_json
from hourmark.process.os_errors import file_errors_reported
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark_infra.components import child_environment
from hourmark_infra.jars.cache import print_progress
from hourmark_infra.locks import exclusive_lock
from hourmark_infra.running.closed_buckets import describe_buckets
from hourmark_infra.running.progress import RunProgress
from hourmark_infra.running.run import Run, RunOutcome
from hourmark_infra.running.stack_holder import describe_conflict
from hourmark_infra.stack.options import Clusters, clusters_option

_FOLDER = Path("pipeline")
_FOLLOWED_BUCKET_S: Final = 60  # of a new configuration whose files are followed


@click.command()
@click.option(
    "--once",
    is_flag=True,
    help="Deliver the current content of the files, wait until its buckets are closed, and exit.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Configuration file. Default: {_FOLDER / 'hourmark.toml'}, which `hourmark init` writes.",
)
@click.argument("logs", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@clusters_option(1)
@click.option("--yes", is_flag=True, help="Accept the proposals for FILE without asking.")
@json_option
@file_errors_reported()
def run(
    once: bool,
    file: Path | None,
    logs: tuple[Path, ...],
    clusters: Clusters | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Run and supervise the delivery service, the tailer and the ETL, with one log on stderr.

    If log files are given, the command first proposes event types for them. If the configuration
    names no Kafka cluster, the command starts the local stack, which keeps running afterwards. A
    new stack has one cluster and no mirror. If the event types include the canary (see `hourmark
    canary declaration`), the command also sends canary events, except with --once.

    Ctrl-C stops the components. After any interruption, even kill -9, the next run continues. With
    --once, the command exits when all existing lines are in closed buckets or are dead letters. If
    lines were lost, the command reports the files that contained them.

    If a file was rotated or compressed after `hourmark init` read it, the command still finds and
    delivers it. Stack traces are written only to the log files of the components, in
    $HOURMARK_HOME/run/logs.

    \b
    Examples:
      hourmark run --once /var/log/dpkg.log     from a log file to closed buckets
      hourmark run                              the configuration that `hourmark init` wrote
      hourmark run --config hourmark.toml       another configuration, such as one with your own servers
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, signal.default_int_handler)  # handled like Ctrl-C
    with _only_run(stack_state_dir()):
        if logs:
            file = _propose_configuration(logs, file, once=once, yes=yes)
        outcome = _run(file, clusters, once=once)
    _print_outcome(outcome, as_json=as_json)


@contextmanager
def _only_run(home: Path) -> Iterator[None]:
    # A second run would stop the components of the first one.
    lock = home / "run" / "lock"

    def refuse() -> None:
        raise Unavailable(
            f"another `hourmark run` (process {lock.read_text() or 'starting'}) uses {home}: stop "
            "it with Ctrl-C, or set HOURMARK_HOME to another folder"
        )

    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(lock, refuse))
            lock.write_text(str(os.getpid()))
        except OSError as error:
            raise ConfigError(
                f"HOURMARK_HOME: {home} cannot be used: {error.strerror}; set it to a folder that "
                "this user may write"
            ) from error
        yield


def _run(file: Path | None, clusters: Clusters | None, *, once: bool) -> RunOutcome:
    running = Run(
        stack_state_dir(),
        (file or _FOLDER / "hourmark.toml").absolute(),
        SystemClock(),
        print_progress,
        clusters,
    )
    try:
        if not once:
            running.run_until_stopped()
        return running.run_once()
    except KeyboardInterrupt:
        print_progress("stopping the components; the next run continues where this one stopped")
        sys.exit(130)
    finally:
        running.stop()


def init_options(*, once: bool, is_new: bool, yes: bool) -> list[str]:
    """Return the options that `hourmark run LOG…` passes to `hourmark init`.

    Args:
        once: Whether to deliver only the existing content of the files (`--once`). `hourmark init`
            then chooses the bucket length based on the age of the lines.
        is_new: Whether there is neither a configuration nor a local stack, and the bucket length
            can still be chosen.
        yes: Whether to accept proposals without asking.

    Returns:
        `--bucket-seconds 60` if `is_new` is True and `once` is False, followed by `--yes` if `yes`
        is True; empty if neither applies.
    """
    length = ["--bucket-seconds", str(_FOLLOWED_BUCKET_S)] if is_new and not once else []
    return [*length, *(["--yes"] if yes else [])]


def _propose_configuration(
    logs: tuple[Path, ...], file: Path | None, *, once: bool, yes: bool
) -> Path:
    if file is not None:
        raise UsageError(
            f"--config {file} and log files exclude each other; a configuration is proposed for "
            "log files, so leave one of them out"
        )
    written = _FOLDER / "hourmark.toml"
    before = b""
    if written.exists():
        load_config(written)  # a wrong setting is reported here
        before = written.read_bytes()
    elif said := describe_conflict(stack_state_dir(), written.absolute()):
        raise UsageError(said)
    logs = find_new_logs(logs, before.decode(), print_progress)
    if not logs:
        return written
    is_new = not before and not stack_config_file().exists()
    options = init_options(once=once, is_new=is_new, yes=yes)
    command = [sys.executable, "-m", "hourmark", "init", *map(str, logs), *options]
    is_asking = sys.stdin.isatty() and not yes  # then progress would be printed after a question
    waiting = RunProgress(print_progress, SystemClock()).awaiting("the proposal for the log files")
    with nullcontext() if is_asking else waiting:
        done = subprocess.run(
            command, env=child_environment(), stdout=sys.stderr.fileno(), check=False
        )
    if done.returncode != 0 or not written.exists() or written.read_bytes() == before:
        sys.exit(done.returncode or 1)  # `hourmark init` printed the reason, or the user declined
    return written


def find_new_logs(
    logs: Iterable[Path], settings: str, report: Callable[[str], None]
) -> tuple[Path, ...]:
    """Return the log files that a configuration does not read yet.

    Args:
        logs: Paths of log files.
        settings: Text of the configuration file; empty if there is none.
        report: Function that receives a message for each log file that the configuration already
            reads.

    Returns:
        The log files that no source of the configuration includes, in the order of `logs`. All of
        them if `settings` is not valid TOML.
    """
    try:
        sources = tomllib.loads(settings).get("tailer", {}).get("sources", [])
    except tomllib.TOMLDecodeError:  # `hourmark init` reports it
        return tuple(logs)
    new = []
    for log in logs:
        source = find_tailed_source(sources, log)
        if source is None:
            new.append(log)
        else:
            report(
                f"{log} is in the configuration already, as source {source}: lines that were not "
                "delivered before are delivered"
            )
    return tuple(new)


def _print_outcome(outcome: RunOutcome, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "seconds": round(outcome.seconds, 1),
                "tailed": outcome.tailed,
                "buckets": outcome.buckets,
                "open_hour": outcome.open_hour,
                "config": str(outcome.config),
            }
        )
        return
    for line in describe_outcome(outcome):
        click.echo(line)


def _describe_dead_letters(reasons: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for source, counts in sorted(reasons.items()):
        count = sum(counts.values())
        named = ", ".join(f"{reason} {n:,}" for reason, n in sorted(counts.items()))
        yield (
            f"source {source}: {count:,} line{'s' * (count != 1)} could not be parsed ({named}); "
            "`hourmark dead-letters show` names the reason of each"
        )


def _describe_losses(tailed: Mapping[str, Any], configured: Sequence[str]) -> Iterator[str]:
    lost, unknown = tailed.get("lost_bytes", 0), tailed.get("unknown_losses", 0)
    if lost or unknown:
        occasions = f"on {unknown:,} occasion{'s' * (unknown != 1)}"
        sure = [f"{lost:,} bytes"] if lost else []
        possible = [f"possibly {'more' if lost else 'some bytes'} {occasions}"] if unknown else []
        files = tailed.get("lost_files", ())
        where = f", in {name_some(files)}" if files else ""
        status = shlex.join(("hourmark", "tail", "status", *configured))
        yield (
            f"lost in this and earlier runs: {', and '.join([*sure, *possible])}, by deletion or "
            f"truncation before they were read{where}; `{status}` shows when"
        )


def describe_outcome(outcome: RunOutcome) -> Iterator[str]:
    """Format the result of `hourmark run --once` as lines of text.

    Args:
        outcome: Result of the run.

    Yields:
        The closed buckets, the dead letters (log lines that could not be parsed), the duration of
        the run, and commands for showing the content of buckets and dead letters.
    """
    yield from describe_buckets(outcome.buckets)
    yield from _describe_dead_letters(outcome.tailed["dead_letter_reasons"])
    configured = ("--config", str(outcome.config))
    losses = [*_describe_losses(outcome.tailed, configured)]
    yield from losses
    where = (
        "in one of these buckets or is a dead letter"
        if outcome.buckets
        else "where an earlier run delivered it"
    )
    if outcome.open_hour is not None:
        where += (
            f", or in the bucket {outcome.open_hour}, which is still open: the next "
            "`hourmark run --once` after its end closes it"
        )
    if outcome.buckets and not outcome.tailed["dead_letter_reasons"]:
        yield "no line of this run became a dead letter"
    lines = "every line that was read" if losses else "every line"
    yield f"after {outcome.seconds:.0f} s {lines} is {where}; to see the content:"
    event_buckets = [row for row in outcome.buckets if row["type"] != DEAD_LETTERS.name]
    for row in (event_buckets or outcome.buckets)[:1]:
        cat = ("bucket", "cat", row["type"], row["hour"])
        yield f"  {launcher_command()} {shlex.join((*cat, '--limit', '3', *configured))}"
        query = shlex.join((*cat, "--json", *configured))
        yield f"  {launcher_command()} {query} > hour.jsonl  # for jq, pandas or Spark"
    if len(event_buckets) < len(outcome.buckets):
        yield f"  {launcher_command()} {shlex.join(('dead-letters', 'show', *configured))}"
    yield f"  {launcher_command()} {shlex.join(('bucket', 'ls', *configured))}"
    yield f"  {launcher_command()} down  # stops the servers"
