"""`hourmark status`: servers, components and event types, their problems, and the next steps."""

from __future__ import annotations

import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from hourmark.clock import SystemClock
from hourmark.commands.component_status import ASPECTS, COMPONENTS, component_statuses
from hourmark.commands.server_status import (
    ServerStatus,
    local_server_statuses,
    remote_server_statuses,
)
from hourmark.commands.status_report import StatusReport
from hourmark.config.loading import (
    Config,
    config_arguments,
    config_file_option,
    default_config_file,
    load_config,
    remember_config_file,
)
from hourmark.errors import UsageError
from hourmark.printing import json_option, launcher_command, print_json

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_LIBRDKAFKA = "hourmark.kafka.clients.librdkafka"


@click.command()
@click.option(
    "--watch",
    "every_s",
    type=click.FloatRange(min=1.0),
    is_flag=False,
    flag_value=5.0,
    metavar="[SECONDS]",
    help="Repeat the output until Ctrl-C, every 5 seconds or at this interval.",
)
@json_option
@config_file_option("file", callback=remember_config_file)
def status(every_s: float | None, as_json: bool, file: Path | None) -> None:
    """Show whether the installation works, and list each problem with its start and the next step.

    The first line of the output is a summary. The next lines list the problems, with causes before
    consequences. Then follow the servers, the components and the event types.

    The command works on any machine. With the configuration of the local stack, it shows the
    servers of the stack; otherwise, it shows the configured servers. It lists the components whose state cannot be
    determined from this machine. Every query has a time limit.

    The exit code is 0 if there is no known problem, otherwise 1. A component that was never
    started, or was shut down cleanly, is not a problem.

    \b
    Examples:
      hourmark status
      hourmark status --config hourmark.toml --json
      hourmark status --watch
    """
    if every_s is not None:
        if as_json:
            raise UsageError("--watch shows text; call `hourmark status --json` repeatedly instead")
        _watch(every_s)
        return
    report = read_report(file)
    if as_json:
        print_json(report.to_json())
    else:
        for line in report.lines():
            click.echo(line.replace("`hourmark ", f"`{launcher_command()} "))
    sys.exit(0 if report.is_well else 1)


def _watch(every_s: float) -> None:
    # A process of its own each time: threads that wait for a server that hangs end with it.
    command = [sys.executable, "-m", "hourmark", "status", *config_arguments()]
    clock = SystemClock()
    while True:
        shown = subprocess.run(command, capture_output=True, text=True, check=False)
        click.echo(f"{_CLEAR if sys.stdout.isatty() else ''}{shown.stdout}{shown.stderr}", nl=False)
        clock.sleep(every_s)


def read_report(file: Path | None) -> StatusReport:
    """Check all servers and components in parallel, and return a report.

    If a server or component does not answer, the report contains a problem or an unknown state.

    Args:
        file: The configuration file; None selects the default file.

    Raises:
        UsageError: There is no configuration, and no local stack on this machine.
        ConfigError: The configuration is invalid.
    """
    # A server that does not answer shows in the report; log messages of its client are suppressed.
    logging.getLogger(_LIBRDKAFKA).addHandler(logging.NullHandler())
    clock = SystemClock()
    path, config = file or default_config_file(), load_config(file)
    is_configured = bool(config.model_fields_set)
    if not is_configured:
        servers = local_server_statuses(None)
        if servers is None:
            raise UsageError(
                "there is no configuration: name its file with --config or $HOURMARK_CONFIG; "
                "`hourmark up` starts a local stack, which has one"
            )
        return StatusReport(
            now_ms=clock.now_ms(), config=None, servers=servers, components={}, aspects={}
        )
    with ThreadPoolExecutor(1) as pool:
        servers_found = pool.submit(_servers, config)
        parts = component_statuses(config, clock, {**COMPONENTS, **ASPECTS})
        return StatusReport(
            servers=servers_found.result(),
            now_ms=clock.now_ms(),
            config=None if path is None else str(path),
            components={name: parts[name] for name in COMPONENTS},
            aspects={name: parts[name] for name in ASPECTS},
        )


def _servers(config: Config) -> list[ServerStatus]:
    local = local_server_statuses(config)
    return remote_server_statuses(config) if local is None else local
