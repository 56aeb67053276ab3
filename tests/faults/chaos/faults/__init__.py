"""Faults by name.

Each says what it touches, how long it stays, and what must go on meanwhile; `inject` gives its
`heal`.

A module for each kind; `FAULTS` is all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.faults.chaos.faults import (
    brokers,
    clocks,
    drivers,
    gone,
    ledgers,
    network,
    processes,
    stored,
)
from tests.faults.chaos.faults.fault import Fault, Heal, NotInjected
from tests.faults.chaos.schedule import Tier
from tests.support import postgres

FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault
    for kind in (processes, brokers, network, stored, drivers, ledgers, clocks, gone)
    for fault in kind.FAULTS
}


def of_tier(tier: Tier) -> dict[str, Fault]:
    """Those that a tier draws from, on this machine: the smallest has a smaller world, and five
    minutes.
    """
    return {
        name: fault
        for name, fault in FAULTS.items()
        if (tier != "pr" or not (fault.needs_spread or fault.needs_minutes))
        and (not fault.needs_postgres or postgres.binaries())
    }


__all__ = ["FAULTS", "Fault", "Heal", "NotInjected", "of_tier"]
