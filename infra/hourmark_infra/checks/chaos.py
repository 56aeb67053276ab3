"""`hourmark chaos`: runs the chaos tests of the checkout (`tests/faults/chaos`)."""

from __future__ import annotations

import os
import sys

import click

from hourmark.errors import UsageError
from hourmark_infra.checks.cli import checkout_root
from hourmark_infra.java.find import export_java_home


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def chaos(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Inject hundreds of faults into a separate stack.

    The subcommand `run` executes a schedule of faults, `list` shows the available faults, and
    `report` creates the page with the results.

    \b
    Examples:
      hourmark chaos run --tier pr --seed 7
      hourmark chaos run --fault edge-leader-sigkill --rounds 1
      hourmark chaos list
      hourmark chaos report
    """
    try:
        root = checkout_root("the fault tests")
    except UsageError as error:
        if arguments != ("--help",):
            raise
        click.echo(f"{context.get_help()}\n\n{error}")  # help of the subcommands needs the checkout
        return
    export_java_home()
    os.chdir(root)
    command = [sys.executable, "-m", "tests.faults.chaos", *arguments]
    # exec without a shell, so that Ctrl-C and SIGTERM reach the chaos process directly.
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": str(root)})  # noqa: S606
