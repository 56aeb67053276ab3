"""Faults by name. Each says what it touches, how long it stays, and what must go on meanwhile; `inject` gives its `heal`.

A module for each kind; `FAULTS` is all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.faults.chaos.faults import drivers, network, processes, stored
from tests.faults.chaos.faults.fault import Fault

FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault for fault in (*processes.FAULTS, *network.FAULTS, *stored.FAULTS, *drivers.FAULTS)
}

__all__ = ["FAULTS", "Fault"]
