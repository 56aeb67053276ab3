"""What commands let the user choose of the local stack."""

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


class _Number(click.Choice[str]):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return int(super().convert(value, param, ctx))


def clusters_option(first: Clusters, *, kept: bool = True) -> Callable[[_F], _F]:
    """`--clusters`, None where it is left out; `first`: what a stack that is made then gets,
    `kept`: and others have by then.
    """
    return click.option(
        "--clusters",
        type=_Number(["1", "2"]),
        help="Of Kafka: 2 are an edge and a central one, with a mirror between them; 1 is both. "
        f"Default: {'as before, at first ' if kept else ''}{first}.",
    )
