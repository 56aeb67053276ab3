"""Shared command-line options of the local stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import click

Clusters = Literal[1, 2]
Workers = Literal[1, 2]  # of the mirror
_F = TypeVar("_F", bound=Callable[..., Any])
SERVERS: Final = {
    1: "three brokers, HDFS, registry",
    2: "three edge brokers, a central one, MirrorMaker 2, HDFS, registry",
}


class _NumberChoice(click.Choice[str]):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return int(super().convert(value, param, ctx))


def clusters_option(first: Clusters, *, kept: bool = True) -> Callable[[_F], _F]:
    """Return a `click` decorator for the option `--clusters` (number of Kafka clusters).

    The option accepts 1 and 2. The decorated command receives an integer, or None if the option is
    omitted. The arguments only affect the help text.

    Args:
        first: Default for a new stack, according to the help text.
        kept: Whether the help text states that an existing stack keeps its number of clusters if
            the option is omitted.
    """
    return click.option(
        "--clusters",
        type=_NumberChoice(["1", "2"]),
        help="Number of Kafka clusters. With 2, there is an edge and a central cluster, with a mirror "
        "between them. With 1, one cluster serves as both. Default: "
        f"{'the previous value, or for a new stack ' if kept else ''}{first}.",
    )
