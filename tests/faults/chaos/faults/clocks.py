"""The clock of one process, hours ahead or behind, and right again while it runs.

Where a service's is wrong, both tailers know the other's, and the program says when it saw an
event: nothing gets a wrong time. A tailer that begins meanwhile, or cannot reach the other, may
know no better; so no fault beside it hits tailers, services or the program.
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
_ON_HOSTS: Final = frozenset(("service", "tailer-a", "tailer-b", "api", "driver"))
_GOES_ON: Final = CLIENTS | {
    Flow.MIRROR,
    Flow.STAGING,
}  # nothing closes by a clock that nobody else has


def _shifted(whose: str, sign: int, world: World, pick: float) -> Heal:
    """An hour at least. A service says itself what time it has then."""
    file, by_ms = world.clock_offset(whose), sign * int(_HOUR_MS * (1 + pick * (_MOST_HOURS - 1)))
    shift(file, by_ms)
    try:
        off_ms = (
            world.service_clock_ms(whose) - world.clock.now_ms() if whose in world.ports else by_ms
        )
        assert abs(off_ms - by_ms) < _HOUR_MS // 2, (
            f"the clock of service {whose} is {off_ms} ms ahead, not {by_ms}"
        )
    except BaseException:
        file.unlink()
        raise
    return file.unlink


FAULTS: Final[Sequence[Fault]] = (
    Fault(
        "driver-clock-ahead",
        frozenset(("driver",)),
        _GOES_ON,
        _HOLD_S,
        partial(_shifted, "center", 1),
    ),
    Fault(
        "driver-clock-behind",
        frozenset(("driver",)),
        _GOES_ON,
        _HOLD_S,
        partial(_shifted, "center", -1),
    ),
    Fault("service-b-clock-ahead", _ON_HOSTS, _GOES_ON, _HOLD_S, partial(_shifted, "b", 1)),
    Fault("service-b-clock-behind", _ON_HOSTS, _GOES_ON, _HOLD_S, partial(_shifted, "b", -1)),
)
