"""The command line: a table of commands, each found in its room only when it is run.

The rooms are imported by name at run time, so `hourmark tail` on a log host never loads Spark, and this package imports
no room. A command's module defines a `click.Command`; results go to stdout, progress and logs to stderr.
Exit codes: 0, 1 (a finding or a fault), 2 (wrong use).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping

import click

from hourmark.errors import HourmarkError

COMMANDS: Mapping[str, tuple[str, str]] = {
    # name: (module:attribute, one line of help shown without loading the room)
    "demo": ("infra.demo.cli:demo", "The whole path on a local stack: real files to closed, proved buckets."),
    "test": ("infra.checks.cli:test", "Run every check and the whole test suite."),
    "bench": ("infra.checks.bench:bench", "Run a benchmark of this checkout, side by side with its peers."),
    "up": ("infra.stack.cli:up", "Start the local stack: Kafka, MirrorMaker 2, HDFS, schema registry."),
    "status": ("infra.stack.cli:status", "Show the local stack: process, address, memory, health."),
    "down": ("infra.stack.cli:down", "Stop what `up` started; data stays."),
    "purge": ("infra.stack.cli:purge", "Stop the local stack and delete its data."),
    "types": ("hourmark.types_cli:types", "Event types: apply, list, check."),
    "tail": ("producer.cli:tail", "Run the File Tailer on a log host."),
    "serve": ("delivery_service.cli:serve", "Run the Event Delivery Service."),
    "mirror": ("mirror.cli:mirror", "MirrorMaker 2: run it, show its lag, verify it."),
    "etl": ("etl.cli:etl", "The PySpark job from the central cluster to closed buckets."),
    "ledger": ("etl.ledger_cli:ledger", "The ETL's ledger: check it, make a lost one anew."),
    "bucket": ("etl.bucket_cli:bucket", "Hourly buckets: list, show, verify, print; why one is open, force one."),
    "audit": ("etl.audit_cli:audit", "The books: what was promised, and what became of it."),
    "judge": (
        "infra.judge.cli:judge",
        "Compare source files with buckets and dead letters, sharing no code with either.",
    ),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def __init__(self, table: Mapping[str, tuple[str, str]], **attrs: object) -> None:
        super().__init__(**attrs)  # type: ignore[arg-type]  # click's own keyword arguments, passed on unchanged
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._table:
            return None
        module, attribute = self._table[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), f"{module}:{attribute} is no click command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in self._table.items()])


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hourmark")
def root() -> None:
    """Log events from files on many hosts into hourly buckets on HDFS: each exactly once, each bucket closed with a proof.

    Start with:  ./hourmark demo
    """


def main() -> None:
    """Entry point of `hourmark`: shows a `HourmarkError` as one message and exits with its code."""
    try:
        root(standalone_mode=True)
    except HourmarkError as error:
        click.echo(f"hourmark: {error}", err=True)
        sys.exit(error.exit_code)
