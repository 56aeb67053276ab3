"""`hourmark tail`: the File Tailer's command line."""

from __future__ import annotations

import dataclasses
import gc
import logging
import shlex
import socket
import threading
from pathlib import Path

import click

from hourmark.clock import SystemClock
from hourmark.config.groups import Tailer as TailerConfig
from hourmark.config.loading import Config, config_file_option, load_config, name_file, named_config
from hourmark.config.redaction import redact
from hourmark.errors import UsageError
from hourmark.log import set_up_logging
from hourmark.printing import json_option, printable, say_json
from hourmark.process.allocator import give_back_large_blocks, give_back_what_is_free, use_one_arena
from hourmark.process.stopping import release_reloads, stop_on_signals
from hourmark_producer.check import check, check_reload
from hourmark_producer.checkpoint.installation import (
    REREAD_REPEATS,
    lock_state_folder,
    open_installation,
)
from hourmark_producer.reloading import Reloading
from hourmark_producer.report.probes import answering
from hourmark_producer.report.status import FILES_SHOWN, as_text, status_of
from hourmark_producer.report.summary import Summary
from hourmark_producer.report.trace import trace
from hourmark_producer.settings import checked
from hourmark_producer.tailer import Tailer
from hourmark_producer.watch.descriptors import raise_open_file_limit

_LOG = logging.getLogger(__name__)


@click.group(invoke_without_command=True)
@config_file_option("config_file", callback=name_file)
@click.option(
    "--check",
    "only_check",
    is_flag=True,
    help="Say whether a start would go well, and end. Changes nothing.",
)
@click.option(
    "--drain",
    is_flag=True,
    help="Read all files to their end, wait until all is acknowledged, say goodbye, end.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Read what is there, wait until all is acknowledged and reported, end. No goodbye.",
)
@click.option(
    "--give-up-after",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --once: end with exit code 1 where nothing was acknowledged for so long.",
)
@click.option(
    "--reread",
    is_flag=True,
    help=(
        f"Start although the checkpoint is missing or broken: {REREAD_REPEATS}. No effect "
        "while the checkpoint is in order."
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
    reread: bool,
    as_json: bool,
) -> None:
    """Follow log files and deliver their lines, each exactly once, across restarts, rotation and truncation.

    Files are sources in the group `tailer` of the configuration. SIGTERM or Ctrl-C ends it; the next start goes on where it was.
    A tailer that is stopped says no goodbye: hours wait for its host until it runs again, or until their deadline
    (etl.deadline_seconds, two hours by default), past which they close as timed_out. A host that is to send nothing more
    drains with --drain, which says goodbye. --once is a pass for a timer: its host is awaited until the next. SIGHUP takes the
    configuration as it stands then, if that is in order.

    \b
    Examples:
      hourmark tail                          follow the files of ./hourmark.toml
      hourmark tail --config edge.toml       follow those of another configuration
      hourmark tail --check                  is the configuration in order, can its files be read, who answers
      hourmark tail --drain --json           deliver what is there, print what it came to, end
      hourmark tail --once                   the same without a goodbye: this host is awaited, as it comes again
      hourmark tail status                   what was done, what is to be done, what was lost
      hourmark tail trace app.log:17         how far the 17th line has come on this host
    """
    if context.invoked_subcommand is not None or only_check or drain or once:
        release_reloads()
    if only_check and (context.invoked_subcommand or drain or once or reread):
        raise UsageError("--check ends before anything is done; leave the rest out")
    if only_check:
        _check(load_config(config_file), as_json=as_json)
    elif context.invoked_subcommand is None:
        if drain and once:
            raise UsageError("--drain says goodbye and --once does not; choose one")
        once_s = give_up_after if once else None
        _run(config_file, drain=drain, once_s=once_s, reread=reread, as_json=as_json)
    elif drain or once or reread:
        raise UsageError(
            "--drain, --once and --reread are no options of `hourmark tail "
            f"{context.invoked_subcommand}`"
        )


@tail.command()
@config_file_option("config_file", callback=name_file)
@click.option(
    "--all",
    "every_file",
    is_flag=True,
    help=f"Every file, and not only the {FILES_SHOWN} with the most to send.",
)
@json_option
@click.pass_context
def status(
    context: click.Context, config_file: Path | None, every_file: bool, as_json: bool
) -> None:
    """Show what the tailer of this configuration has done and has yet to do, whether or not it runs. Changes nothing.

    Files with their positions, bytes by source, losses, what ails it, and when it was last caught up. Exit code 1 where somebody
    should look: lines that begin with `!`.

    \b
    Examples:
      hourmark tail status
      hourmark tail status --config edge.toml --json
    """
    group = context.find_root() if context.parent is None else context.parent
    config = load_config(config_file or group.params.get("config_file"))
    found = status_of(config.tailer.state_dir, [source.name for source in config.tailer.sources])
    if as_json:
        say_json(dataclasses.asdict(found))
    else:
        click.echo("\n".join(map(printable, as_text(found, every_file=every_file))))
    if found.attention:
        raise SystemExit(1)


tail.add_command(trace)


def _run(
    config_file: Path | None, *, drain: bool, once_s: float | None, reread: bool, as_json: bool
) -> None:
    config = load_config(config_file)
    set_up_logging(config.log_level)
    settings = checked(config.tailer)
    use_one_arena()
    give_back_large_blocks()
    stop = threading.Event()
    clock = SystemClock()
    reloading = Reloading(
        lambda: check_reload(checked(load_config(config_file).tailer), settings, host_id, clock),
        stop.set,
    )
    is_over = stop_on_signals(lambda _: stop.set())
    with lock_state_folder(settings.state_dir):
        checkpoint, host_id = open_installation(
            settings.state_dir,
            reread=reread,
            sources=[source.name for source in settings.sources],
            second=settings.second_state_dir,
        )
        if not drain and once_s is None:
            reloading.listen()
        try:
            tailer = Tailer(
                settings,
                checkpoint,
                clock,
                host_id=host_id,
                host_name=settings.host_name or socket.gethostname(),
                open_files_max=raise_open_file_limit(),
                reloading=reloading,
            )
            gc.collect()
            # modules live as long as the tailer: looking through them again and again took 2 % of
            # its CPU
            gc.freeze()
            give_back_what_is_free()
            with answering(tailer, settings.metrics_host, settings.metrics_port):
                summary = tailer.run(stop, drain=drain, once_s=once_s)
        finally:
            checkpoint.close()
    reloading.begin_anew(is_over)
    _show(summary, as_json=as_json)
    if not summary.goodbye:
        _LOG.log(
            logging.INFO if summary.finished else logging.WARNING, "%s", _left_waiting(settings)
        )
    if (drain or once_s is not None) and not summary.finished:
        raise SystemExit(1)


def _check(config: Config, *, as_json: bool) -> None:
    answers = [
        dataclasses.replace(answer, subject=redact(answer.subject), said=redact(answer.said))
        for answer in check(checked(config.tailer), SystemClock())
    ]
    ok = not any(answer.level == "error" for answer in answers)
    if as_json:
        say_json({"ok": ok, "checks": [dataclasses.asdict(answer) for answer in answers]})
    else:
        for answer in answers:
            click.echo(printable(f"{answer.level:<8} {answer.subject}: {answer.said}"))
    if not ok:
        raise SystemExit(1)


def _left_waiting(settings: TailerConfig) -> str:
    """What a stop without a goodbye means for buckets, and what ends it."""
    drain = shlex.join(["hourmark", "tail", "--drain", *named_config()])
    return (
        "stopped without a goodbye: hours that "
        f"{', '.join(source.name for source in settings.sources)} may carry wait for this "
        "host until this tailer runs again and has caught up, or until their deadline "
        "(etl.deadline_seconds, two hours by "
        "default), past which they close as timed_out. If this host shall send nothing more: "
        f"`{drain}`"
    )


def _show(summary: Summary, *, as_json: bool) -> None:
    for path, count in summary.unterminated.items():
        _LOG.warning(
            "%s ends with %d bytes that are no whole line; they wait for its end", path, count
        )
    if as_json:
        say_json(dataclasses.asdict(summary))
        return
    click.echo(
        f"{summary.bytes} bytes in {summary.ranges} ranges acknowledged: {summary.events} "
        "events, "
        f"{summary.dead_letters} dead letters; {summary.pending_bytes} bytes pending, "
        f"{summary.lost_bytes} lost, "
        f"unknown losses: {summary.unknown_losses}"
    )
