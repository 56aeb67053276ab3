"""The driver killed at a step of its own, and two drivers at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.faults.chaos.faults.fault import Fault, Heal
from tests.faults.chaos.faults.processes import CLIENTS
from tests.faults.chaos.flows import Flow
from tests.support.crash import STEPS, CrashOrder, Moment

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

# Whatever would keep it from coming to the step; a fault there could not heal before this one did.
_ON_THE_WAY: Final = frozenset(
    ("driver", "ledger", "hdfs", "central", "mirror", "edge", "service", "tailer-a", "tailer-b")
)
_GOES_ON: Final = CLIENTS | {Flow.MIRROR}
_HOLD_S: Final = (5.0, 20.0)
_ENDS_S: Final = 60.0
_TAKEN_S: Final = 600.0  # a driver that only just started on a busy machine comes to it late
_MOMENTS: Final[Sequence[Moment]] = ("before", "after")
_ORDERS: Final = tuple(CrashOrder(step, moment) for step in STEPS for moment in _MOMENTS)


def _killed_at(order: CrashOrder, world: World, _pick: float) -> Heal:
    """SIGKILL for itself, or for the worker that does it, when it next comes to the step; Spark
    starts another worker.
    """
    world.hit.add("etl")
    order.place(world.crash_order)

    def heal() -> None:
        world.wait(
            lambda: not world.crash_order.exists(),
            f"the driver or a worker to come {order}",
            _TAKEN_S,
        )
        if order.ends_driver:
            world.wait(
                lambda: not world.victims["etl"].is_alive(),
                f"the driver to be killed {order}",
                _ENDS_S,
            )
        world.victims["etl"].come_back()
        world.hit.discard("etl")

    return heal


def _two(world: World, _pick: float) -> Heal:
    """Another one takes over, as soon as it is up; then a third.

    The first one may be about to end by then, so it is killed.
    """
    world.hit.add("etl")
    world.second_driver.start("etl")

    def heal() -> None:
        world.second_driver.kill("etl")
        world.victims["etl"].kill()
        world.victims["etl"].come_back()
        world.hit.discard("etl")

    return heal


def _whom(order: CrashOrder) -> str:
    return "driver" if order.ends_driver else "worker"


FAULTS: Final[Sequence[Fault]] = (
    *(
        Fault(
            f"{_whom(order)}-killed-{order}",
            _ON_THE_WAY,
            _GOES_ON,
            _HOLD_S,
            partial(_killed_at, order),
        )
        for order in _ORDERS
    ),
    Fault("two-drivers", frozenset(("driver",)), _GOES_ON, (40.0, 70.0), _two),
)
