"""What a fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.faults.chaos.flows import Flow

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

Heal = Callable[[], None]  # returns once what was hit is well again by its own word


def index_of(pick: float, count: int) -> int:
    """Which of so many a pick from 0 to 1 means."""
    return int(pick * 0.999 * count)


class NotInjected(Exception):
    """There is nothing to hit now, so nothing was done."""


@dataclass(frozen=True)
class Fault:
    """`touches`: two faults that touch the same are never at once. `goes_on`: what must move in
    every minute meanwhile.

    `inject` does it, by a `pick` from 0 to 1 where something is left open, and returns what ends
    it. `needs_spread`: where the central cluster and HDFS are three servers each. `needs_postgres`:
    where the ledger is in it. `needs_minutes`: of an operator, which the smallest tier does not
    have.
    """

    name: str
    touches: frozenset[str]
    goes_on: frozenset[Flow]
    hold_s: tuple[float, float]
    inject: Callable[[World, float], Heal]
    needs_spread: bool = False
    needs_postgres: bool = False
    needs_minutes: bool = False
