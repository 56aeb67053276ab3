"""`hourmark canary`: its two commands live where they run, on a host and beside the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from hourmark.cli import LazyGroup

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "run": ("hourmark_producer.canary:run", "Post one quiet event a minute through the delivery service."),
    "check": ("hourmark_etl.operators.canary:check", "How far the last one came: acknowledged, mirrored, staged, closed."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def canary() -> None:
    """One quiet event a minute, from a host of its own to its closed bucket: is it silence, or is something broken?

    Its type is declared as any other; examples/canary/hourmark-canary.toml is its declaration.
    """
