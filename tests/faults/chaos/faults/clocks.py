"""The clock of one process, hours ahead or behind, and right again while it runs."""

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
_WAYS: Final = (("ahead", 1), ("behind", -1))


def _shifted(whose: str, sign: int, world: World, pick: float) -> Heal:
    """An hour at least."""
    file = world.clock_offset(whose)
    shift(file, sign * int(_HOUR_MS * (1 + pick * (_MOST_HOURS - 1))))
    return file.unlink


def _faults(name: str, whose: str, touches: str) -> list[Fault]:
    return [
        Fault(f"{name}-clock-{way}", frozenset((touches,)), _GOES_ON, _HOLD_S, partial(_shifted, whose, sign))
        for way, sign in _WAYS
    ]


FAULTS: Final[Sequence[Fault]] = (*_faults("driver", "center", "driver"), *_faults("service-b", "b", "service"))
