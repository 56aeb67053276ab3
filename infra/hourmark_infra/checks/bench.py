"""`hourmark bench`: runs a benchmark of the checkout in a child process with unchanged arguments."""

from __future__ import annotations

import os
import subprocess
import sys

import click

from hourmark.errors import UsageError
from hourmark_infra.checks.cli import checkout_root
from hourmark_infra.java.find import export_java_home


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("name", default="")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def bench(context: click.Context, name: str, arguments: tuple[str, ...]) -> None:
    """Run the benchmark NAME: etl, delivery, tailer, size, structuring or containers.

    To find out what a benchmark measures, use `hourmark bench NAME --help`.

    \b
    Examples:
      hourmark bench etl --json
      hourmark bench structuring
    """
    if name in ("", "-h", "--help"):
        click.echo(context.get_help())
        return
    root = checkout_root("the benchmarks")
    found = (file for file in (root / "bench").glob("*.py") if "__main__" in file.read_text())
    names = sorted(file.stem for file in found if not file.stem.startswith(("etl_", "delivery_")))
    if name not in names:
        raise UsageError(
            f"unknown benchmark {name!r}; allowed: {', '.join(names)}. Example: hourmark bench "
            "etl --json"
        )
    export_java_home()
    environment = {**os.environ, "PYTHONPATH": str(root)}
    sys.exit(
        subprocess.call(
            [sys.executable, "-m", f"bench.{name}", *arguments], cwd=root, env=environment
        )
    )
