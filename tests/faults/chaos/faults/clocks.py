"""The clock of the driver hours ahead or behind, and right again while it runs.

A service's is not among them. It is the time of what has none of its own: ahead, that is in a bucket which closes in some hours;
behind, good lines are ahead of it, and become dead letters (`future`). No run can await the one, or expect the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.faults.chaos.faults.fault import Fault, Heal
from tests.faults.chaos.faults.processes import CLIENTS
from tests.faults.chaos.flows import Flow
from tests.support.shifted_clock import shift

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

_HOUR_MS: Final = 3_600_000
_MOST_HOURS: Final = 12.0
_HOLD_S: Final = (20.0, 60.0)
_GOES_ON: Final = CLIENTS | {Flow.MIRROR, Flow.STAGING}  # nothing closes by a clock that nobody else has


def _shifted(sign: int, world: World, pick: float) -> Heal:
    """An hour at least."""
    shift(world.clock_offset, sign * int(_HOUR_MS * (1 + pick * (_MOST_HOURS - 1))))
    return world.clock_offset.unlink


FAULTS: Final[Sequence[Fault]] = (
    Fault("driver-clock-ahead", frozenset(("driver",)), _GOES_ON, _HOLD_S, partial(_shifted, 1)),
    Fault("driver-clock-behind", frozenset(("driver",)), _GOES_ON, _HOLD_S, partial(_shifted, -1)),
)
