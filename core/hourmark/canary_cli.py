"""`hourmark canary`: its two commands live where they run, on a host and beside the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from hourmark.canary import DECLARATION
from hourmark.cli import LazyGroup

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "declaration": ("hourmark.canary_cli:declaration", "Print the declaration of its type, for the folder of your types."),
    "run": ("hourmark_producer.canary:run", "Post one quiet event a minute through the delivery service."),
    "check": ("hourmark_etl.operators.canary:check", "How far the last one came: acknowledged, mirrored, staged, closed."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def canary() -> None:
    """One quiet event a minute, from a host of its own to its closed bucket: is it silence, or is something broken?

    A site has one where its type is declared.
    """


@click.command(epilog="Example:  hourmark canary declaration > types/hourmark-canary.toml")
def declaration() -> None:
    """Print the declaration of the type hourmark-canary: a file for the folder of your types, to be applied as any other.

    Where it stands there, `hourmark run` runs the canary and watches it. Without it there is no canary.
    """
    click.echo(DECLARATION, nl=False)
