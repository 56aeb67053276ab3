"""The command line: a table of commands, each imported from its distribution when it is run.

Commands are imported by name at run time, so `hourmark tail` on a log host never loads Spark, and
this package depends on no other distribution. A command's module defines a `click.Command`. Results
go to stdout, progress and logs to stderr. Exit codes: 0, 1 (a finding or an error), 2 (wrong use).
"""

from __future__ import annotations

import importlib.util
import io
import pkgutil
import sys
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from hourmark.config.redaction import install_redaction, redact
from hourmark.errors import HourmarkError, UsageError
from hourmark.printing import launcher_command
from hourmark.process.stopping import hold_reloads

# title: {name: (module:attribute, one line of help shown without loading the module)}
COMMAND_GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Most used": {
        "run": (
            "hourmark_infra.running.cli:run",
            "Run all components of a configuration on one machine.",
        ),
        "init": (
            "hourmark_declare.init_cli:init",
            "Propose a configuration for log files, based on their lines.",
        ),
        "status": (
            "hourmark.commands.status:status",
            "Show the current problems of servers and components, and how to solve them.",
        ),
        "bucket": (
            "hourmark_etl.operators.buckets.cli:bucket",
            "List, show, verify and print hourly buckets, or explain, await and force their closing.",
        ),
        "doctor": (
            "hourmark_declare.doctor.cli:doctor",
            "Check that servers and this machine provide what Hourmark needs.",
        ),
    },
    "Components": {
        "tail": ("hourmark_producer.cli:tail", "Run the File Tailer on a log host."),
        "serve": ("hourmark_delivery_service.cli:serve", "Run the Event Delivery Service."),
        "etl": (
            "hourmark_etl.cli:etl",
            "Run the PySpark job that closes buckets from the central cluster.",
        ),
        "mirror": (
            "hourmark_mirror.cli:mirror",
            "Run, verify and watch MirrorMaker 2, and show its lag.",
        ),
        "canary": (
            "hourmark.commands.canary:canary",
            "Send a test event once a minute, and show how far it was processed.",
        ),
    },
    "Event types and settings": {
        "types": ("hourmark_declare.cli:types", "Apply, list and check event types."),
        "token": (
            "hourmark_delivery_service.access.cli:token",
            "Create, list and revoke access tokens of the delivery service.",
        ),
        "config": (
            "hourmark.commands.config_show:config_group",
            "Show the settings in force and the origin of each value.",
        ),
    },
    "Search and verify": {
        "dead-letters": (
            "hourmark_etl.operators.dead_letters:dead_letters",
            "Count or show input lines that could not be converted to events.",
        ),
        "audit": (
            "hourmark_etl.operators.audit:audit",
            "Compare the events that audit records count with the events in buckets.",
        ),
        "trace": (
            "hourmark_etl.operators.trace:trace",
            "Show which stage a line, an event or a record has reached, from host to bucket.",
        ),
        "ledger": (
            "hourmark_etl.operators.ledger:ledger",
            "Check the ETL's ledger, recreate a lost one, or migrate its schema.",
        ),
        "rollback": (
            "hourmark.rollback.cli:rollback",
            "Check whether an older version can run with the current data.",
        ),
    },
    "Local stack": {
        "up": (
            "hourmark_infra.stack.cli:up",
            "Start the local stack: Kafka, MirrorMaker 2, HDFS, schema registry.",
        ),
        "down": ("hourmark_infra.stack.cli:down", "Stop the local stack and keep its data."),
        "purge": ("hourmark_infra.stack.cli:purge", "Stop the local stack and delete its data."),
        "demo": (
            "hourmark_verify.demo.cli:demo",
            "Run the whole pipeline on a local stack, from log files to closed buckets.",
        ),
        "judge": (
            "hourmark_verify.judge.cli:judge",
            "Compare source files with buckets and dead letters, with independent code.",
        ),
    },
    "Planning": {
        "evaluate": (
            "hourmark_evaluate.cli:command",
            "Measure how Kafka behaves, on a local stack or on your clusters.",
        ),
        "size": (
            "hourmark_evaluate.sizing.cli:size",
            "Estimate how many machines a load needs, and what limits each component.",
        ),
    },
    "Development and shell": {
        "test": ("hourmark_infra.checks.cli:test", "Run every check and the whole test suite."),
        "bench": (
            "hourmark_infra.checks.bench:bench",
            "Run a benchmark of this checkout, partly in comparison with similar products.",
        ),
        "chaos": (
            "hourmark_infra.checks.chaos:chaos",
            "Inject hundreds of faults into an isolated stack and check the results.",
        ),
        "completion": (
            "hourmark.commands.completion:completion",
            "Print the completion script for bash, zsh or fish.",
        ),
    },
}


def _without_titles(
    groups: Mapping[str, Mapping[str, tuple[str, str]]],
) -> dict[str, tuple[str, str]]:
    return {name: command for group in groups.values() for name, command in group.items()}


COMMANDS: Mapping[str, tuple[str, str]] = _without_titles(COMMAND_GROUPS)

ROOMS = frozenset(module.partition(".")[0] for module, _ in COMMANDS.values())


# Distributions in other Debian packages on this machine, which run their own commands;
# packaging/debian/hourmark fills this set.
ELSEWHERE: set[str] = set()


def _is_installed(room: str) -> bool:
    return room in ELSEWHERE or importlib.util.find_spec(room) is not None


# Extras that a command needs in addition to its distribution.
EXTRAS: Mapping[str, str] = {"etl": "[spark]"} | dict.fromkeys(
    ("ledger", "bucket", "dead-letters", "audit", "trace"), "[arrow]"
)


class LazyGroup(click.Group):
    """A click command group that imports the module of a command only when the command is used.

    This keeps startup fast.

    Args:
        groups: Maps the title of each help section to its commands. The commands map each name to a
            pair: the location of the click command, as `module:attribute`, and its line of help.
        attrs: Keyword arguments of `click.Group`.
    """

    def __init__(
        self, groups: Mapping[str, Mapping[str, tuple[str, str]]], **attrs: object
    ) -> None:
        # click's own keyword arguments, passed on unchanged
        super().__init__(**attrs)  # type: ignore[arg-type]
        self._titles = {title: tuple(group) for title, group in groups.items()}
        self._table = _without_titles(groups)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._table:
            return None
        place = self._table[cmd_name][0]
        try:
            command = pkgutil.resolve_name(place)
        except ModuleNotFoundError as error:
            raise self._not_installed(cmd_name, error) from error
        assert isinstance(command, click.Command), f"{place} is not a click command"
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the selected command; called by click.

        Secrets in the message of a click error are redacted.

        Args:
            ctx: The click context of the group.

        Returns:
            The return value of the command.

        Raises:
            UsageError: A required package is not installed. The message contains the `pip install`
                command.
        """
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise self._not_installed(str(ctx.invoked_subcommand), error) from error
        except click.ClickException as error:
            # click reads it when it prints the error
            error.message = redact(error.message)  # type: ignore[misc]
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the shell completions for a partially typed word after this group.

        Only commands whose Python package is installed are returned. Their modules are not
        imported, which keeps completion fast.

        Args:
            ctx: The click context of the group.
            incomplete: The text typed so far; may be empty.

        Returns:
            The matching commands with their help lines, followed by the group's own options.
        """
        offered = [
            CompletionItem(name, help=help_line)
            for name, (module, help_line) in self._table.items()
            if name.startswith(incomplete) and _is_installed(module.partition(".")[0])
        ]
        return [*offered, *click.Command.shell_complete(self, ctx, incomplete)]

    def _not_installed(self, name: str, error: ModuleNotFoundError) -> UsageError:
        room = self._table[name][0].partition(".")[0]
        missing = str(error.name).partition(".")[0]
        distribution = room.replace("_", "-") + ("" if missing == room else EXTRAS.get(name, ""))
        return UsageError(
            f"`hourmark {name}` needs {missing}, which is not installed; pip install "
            f"'{distribution}'"
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, names in self._titles.items():
            with formatter.section(title):
                formatter.write_dl([(name, self._table[name][1]) for name in names])


@click.group(
    cls=LazyGroup, groups=COMMAND_GROUPS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="hourmark")
def root() -> None:
    """Deliver log events from files into hourly buckets on HDFS, each event exactly once.

    Each bucket is closed with a proof that it is complete.

    \b
    Examples:
      hourmark run --once app.log    from a log file to closed buckets, on this machine
      hourmark demo                  the whole pipeline with faults, checked by a judge
    """


def main() -> None:
    """Run the `hourmark` command with the arguments of the process.

    If the command raises a `HourmarkError`, its message is printed to stderr with secrets redacted,
    and the process exits with the exit code of the error.
    """
    install_redaction()
    if sys.argv[1:2] == ["tail"]:
        hold_reloads()  # importing the tailer takes most of a second
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name need not be UTF-8
    try:
        root(standalone_mode=True)
    except HourmarkError as error:
        text = redact(str(error)).replace("`hourmark ", f"`{launcher_command()} ")
        click.echo(f"hourmark: {text}", err=True)
        sys.exit(error.exit_code)
