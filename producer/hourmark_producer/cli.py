"""The command line of the tailer: `hourmark tail` and its subcommands."""

from __future__ import annotations

import dataclasses
import gc
import logging
import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from hourmark.clock import Clock, SystemClock
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.config.loading import (
    Config,
    config_arguments,
    config_file_option,
    load_config,
    remember_config_file,
)
from hourmark.config.redaction import redact
from hourmark.errors import UsageError
from hourmark.log import set_up_logging
from hourmark.printing import json_option, print_json, printable
from hourmark.process.allocator import release_large_blocks, trim_heap, use_one_arena
from hourmark.process.stopping import release_reloads, stop_on_signals
from hourmark.records.named_files import read_named_files
from hourmark.records.ranges import file_id
from hourmark_producer.check import check_reload, run_startup_checks
from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.checkpoint.installation import (
    REREAD_REPEATS,
    lock_state_folder,
    open_installation,
)
from hourmark_producer.checkpoint.named_files import add_named_files
from hourmark_producer.reloading import ReloadHandler
from hourmark_producer.report.probes import serve_probes
from hourmark_producer.report.status import FILES_SHOWN, format_status, read_status
from hourmark_producer.report.summary import RunSummary
from hourmark_producer.report.trace import trace
from hourmark_producer.settings import validate_settings
from hourmark_producer.tailer import Tailer
from hourmark_producer.watch.descriptors import raise_open_file_limit
from hourmark_producer.wiring import wire_tailer

_LOG = logging.getLogger(__name__)


@click.group(invoke_without_command=True)
@config_file_option("config_file", callback=remember_config_file)
@click.option(
    "--check",
    "only_check",
    is_flag=True,
    help="Check whether a start would succeed, and exit without changing anything.",
)
@click.option(
    "--drain",
    is_flag=True,
    help="Read all files to their end, wait until all is acknowledged, report a goodbye, and exit.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Read the available data, wait until all is acknowledged and reported, and exit without a "
    "goodbye.",
)
@click.option(
    "--give-up-after",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --once: exit with code 1 if nothing is acknowledged for this time.",
)
@click.option(
    "--final-lines",
    is_flag=True,
    help="With --drain or --once: also deliver a last line without a newline, once its file has not "
    "grown for flush_seconds.",
)
@click.option(
    "--reread",
    is_flag=True,
    help=(
        f"Start although the checkpoint is missing or broken: {REREAD_REPEATS}. The "
        "option has no effect if the checkpoint is valid."
    ),
)
@json_option
@click.pass_context
def tail(
    context: click.Context,
    config_file: Path | None,
    only_check: bool,
    drain: bool,
    once: bool,
    give_up_after: float,
    final_lines: bool,
    reread: bool,
    as_json: bool,
) -> None:
    """Follow log files and deliver each line exactly once across restarts, rotation and truncation.

    The table `[tailer]` of the configuration defines which files are read. SIGTERM or Ctrl-C stops
    the tailer, and the next start continues where it stopped. SIGHUP reloads the configuration if
    it is valid.

    When the tailer stops, it reports no goodbye, which is the message that a host will send no more
    data. Therefore, hourly buckets wait for this host until the tailer runs again, or until they
    reach their deadline (etl.deadline_seconds, two hours by default) and are closed as timed_out.
    If the host will send no more data, use --drain. The tailer then delivers everything and reports
    a goodbye, so that no bucket waits for the host.

    The option --once makes a single pass, for example from a timer. It reports no goodbye either,
    so buckets wait for the next pass.

    \b
    Examples:
      hourmark tail                          follow the files of ./hourmark.toml
      hourmark tail --config edge.toml       follow the files of another configuration
      hourmark tail --check                  check the configuration, file access and services
      hourmark tail --drain --json           deliver everything, print a summary, exit
      hourmark tail --drain --final-lines    also deliver last lines without a newline
      hourmark tail --once                   make one pass, on a host that will send again
      hourmark tail register                 scan the files and send nothing
      hourmark tail status                   show progress, backlog and losses
      hourmark tail trace app.log:17         show how far line 17 was delivered
    """
    if context.invoked_subcommand is not None or only_check or drain or once:
        release_reloads()
    if only_check and (context.invoked_subcommand or drain or once or reread):
        raise UsageError("--check only checks; remove the other options and commands")
    if only_check:
        _check(load_config(config_file), as_json=as_json)
    elif context.invoked_subcommand is None:
        if drain and once:
            raise UsageError("--drain reports a goodbye and --once does not; choose one")
        if final_lines and not (drain or once):
            raise UsageError(
                "--final-lines needs --drain or --once: a line of a file that is followed is "
                "delivered when its newline is written"
            )
        _run(
            config_file,
            drain=drain,
            once_s=give_up_after if once else None,
            final_lines=final_lines,
            reread=reread,
            as_json=as_json,
        )
    elif drain or once or reread or final_lines:
        raise UsageError(
            "--drain, --once and --reread are not options of `hourmark tail "
            f"{context.invoked_subcommand}`"
        )


@tail.command()
@config_file_option("config_file", callback=remember_config_file)
@click.option(
    "--all",
    "every_file",
    is_flag=True,
    help=f"Show all files, not only the {FILES_SHOWN} with the largest backlog.",
)
@json_option
@click.pass_context
def status(
    context: click.Context, config_file: Path | None, every_file: bool, as_json: bool
) -> None:
    """Show the progress, backlog and losses of a tailer, even if it is not running.

    The output contains the files with their positions, the bytes by source, losses, ongoing
    problems, and the time at which each source was last caught up. A line that begins with `!` is a
    problem that an operator must examine. If there is such a line, the exit code is 1. The command
    changes nothing.

    \b
    Examples:
      hourmark tail status
      hourmark tail status --config edge.toml --json
    """
    group = context.find_root() if context.parent is None else context.parent
    config = load_config(config_file or group.params.get("config_file"))
    found = read_status(config.tailer.state_dir, [source.name for source in config.tailer.sources])
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        click.echo("\n".join(map(printable, format_status(found, every_file=every_file))))
    if found.attention:
        raise SystemExit(1)


@tail.command()
@config_file_option("config_file", callback=remember_config_file)
@click.option(
    "--named",
    "named_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File named-files.json of `hourmark init`, which lists further log files to register.",
)
@json_option
@click.pass_context
def register(
    context: click.Context, config_file: Path | None, named_file: Path | None, as_json: bool
) -> None:
    """Scan the log files once and record them in the checkpoint, without sending anything.

    If a file is rotated or compressed afterwards, the tailer finds and delivers it after its next
    start, even if no pattern matches the new name of the file. `hourmark run` calls this command
    before it starts servers. The tailer must not be running. With --named, the command also finds
    files that were rotated since `hourmark init`, if their source has never been scanned.

    \b
    Examples:
      hourmark tail register
      hourmark tail register --config edge.toml --named pipeline/named-files.json
    """
    group = context.find_root() if context.parent is None else context.parent
    config = load_config(config_file or group.params.get("config_file"))
    set_up_logging(config.log_level)
    settings = validate_settings(config.tailer)
    named = read_named_files(named_file) if named_file else []
    with _open_checkpoint(settings) as (checkpoint, host_id):
        added = add_named_files(checkpoint, settings.sources, named)
        tailer = _wire(settings, checkpoint, SystemClock(), host_id)
        tailer.scan_once()
        known = {file.file_id: file for file in tailer.files}
        found = [(one.path, known[file_id(*one.identity)]) for one in added]
    rotated = {path: file.place.seen_at for path, file in found if file.place.seen_at != path}
    missing = [path for path, file in found if path not in rotated and file.unfound]
    if as_json:
        print_json({"rotated": rotated, "missing": missing})
        return
    click.echo(f"{len(known)} files are registered in {settings.state_dir}")
    for path, now in rotated.items():
        click.echo(printable(f"{path} was rotated and is now {now}"))
    for path in missing:
        click.echo(printable(f"{path} was rotated or deleted and has not been found yet"))


tail.add_command(trace)


def _run(
    config_file: Path | None,
    *,
    drain: bool,
    once_s: float | None,
    final_lines: bool,
    reread: bool,
    as_json: bool,
) -> None:
    config = load_config(config_file)
    set_up_logging(config.log_level)
    settings = validate_settings(config.tailer)
    use_one_arena()
    release_large_blocks()
    stop = threading.Event()
    clock = SystemClock()
    reloading = ReloadHandler(
        lambda: check_reload(
            validate_settings(load_config(config_file).tailer), settings, host_id, clock
        ),
        stop.set,
    )
    is_over = stop_on_signals(lambda _: stop.set())
    with _open_checkpoint(settings, reread=reread) as (checkpoint, host_id):
        if not drain and once_s is None:
            reloading.listen()
        tailer = _wire(
            settings, checkpoint, clock, host_id, final_lines=final_lines, reloading=reloading
        )
        gc.collect()
        # modules live as long as the tailer: collecting them repeatedly took 2 % of its CPU
        gc.freeze()
        trim_heap()
        with serve_probes(tailer, settings.metrics_host, settings.metrics_port):
            summary = tailer.run(stop, drain=drain, once_s=once_s)
    reloading.restart_if_requested(is_over)
    _show(summary, as_json=as_json)
    if not summary.goodbye:
        _LOG.log(
            logging.INFO if summary.finished else logging.WARNING, "%s", _stop_message(settings)
        )
    if (drain or once_s is not None) and not summary.finished:
        raise SystemExit(1)


@contextmanager
def _open_checkpoint(
    settings: TailerConfig, *, reread: bool = False
) -> Iterator[tuple[Checkpoint, str]]:
    with lock_state_folder(settings.state_dir):
        checkpoint, host_id = open_installation(
            settings.state_dir,
            reread=reread,
            sources=[source.name for source in settings.sources],
            second=settings.second_state_dir,
        )
        try:
            yield checkpoint, host_id
        finally:
            checkpoint.close()


def _wire(
    settings: TailerConfig,
    checkpoint: Checkpoint,
    clock: Clock,
    host_id: str,
    *,
    final_lines: bool = False,
    reloading: ReloadHandler | None = None,
) -> Tailer:
    return wire_tailer(
        settings,
        checkpoint,
        clock,
        host_id=host_id,
        host_name=settings.host_name or socket.gethostname(),
        open_files_max=raise_open_file_limit(),
        final_lines=final_lines,
        reloading=reloading,
    )


def _check(config: Config, *, as_json: bool) -> None:
    answers = [
        dataclasses.replace(answer, subject=redact(answer.subject), said=redact(answer.said))
        for answer in run_startup_checks(validate_settings(config.tailer), SystemClock())
    ]
    ok = not any(answer.level == "error" for answer in answers)
    if as_json:
        print_json({"ok": ok, "checks": [dataclasses.asdict(answer) for answer in answers]})
    else:
        for answer in answers:
            click.echo(printable(f"{answer.level:<8} {answer.subject}: {answer.said}"))
    if not ok:
        raise SystemExit(1)


def _stop_message(settings: TailerConfig) -> str:
    drain = shlex.join(["hourmark", "tail", "--drain", *config_arguments()])
    return (
        "stopped without a goodbye: hours with events of "
        f"{', '.join(source.name for source in settings.sources)} wait for this host until this "
        "tailer runs again and has caught up, or until their deadline (etl.deadline_seconds, "
        "two hours by default), after which they are closed as timed_out. If this host will "
        f"send no more data: `{drain}`"
    )


def _show(summary: RunSummary, *, as_json: bool) -> None:
    for path, count in summary.unterminated.items():
        _LOG.warning(
            "%s ends with %d bytes of an incomplete line; they are delivered once it is complete",
            path,
            count,
        )
    if as_json:
        print_json(dataclasses.asdict(summary))
        return
    click.echo(
        f"{summary.bytes} bytes in {summary.ranges} ranges acknowledged: {summary.events} "
        "events, "
        f"{summary.dead_letters} dead letters; {summary.pending_bytes} bytes pending, "
        f"{summary.lost_bytes} lost, "
        f"unknown losses: {summary.unknown_losses}"
    )
