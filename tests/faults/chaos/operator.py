"""What a person does where something is gone for good: the hours of its type that stay open are
closed by an override.
"""

from __future__ import annotations

import contextlib
from contextlib import closing
from typing import TYPE_CHECKING, Final

from tests.faults.chaos.eyes import Closings
from tests.faults.chaos.settings import BUCKET_SECONDS

from hourmark.errors import Unavailable
from hourmark.records.hours import Hour

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

_PATIENCE_S: Final = (
    20.0  # after all other types closed an hour: what is on its way to this one is there by then
)
_COMMAND_S: Final = 120.0
_LOOK_S: Final = 2.0
_CLOSED_S: Final = 480.0


def close_without(world: World, event_type: str, until_ms: int) -> None:
    """Order each hour that stays open though all other types closed it, until all that was written
    before then is closed.
    """
    with closing(world.hdfs()) as hdfs:
        root, clock = world.config.storage.root, world.clock
        own = Closings(hdfs, root, [event_type], clock)
        others = Closings(hdfs, root, [name for name in world.types if name != event_type], clock)
        waiting: dict[Hour, float] = {}
        looked_s = clock.monotonic_s() - _LOOK_S

        def step() -> bool:
            nonlocal looked_s
            if clock.monotonic_s() - looked_s < _LOOK_S:
                return False
            looked_s = clock.monotonic_s()
            own.look()
            others.look()
            end_ms = own.closed_until_ms()
            if end_ms >= until_ms:
                return True
            hour = Hour.containing(end_ms, BUCKET_SECONDS)
            if others.closed_until_ms() >= hour.end_ms:
                since_s = waiting.setdefault(hour, clock.monotonic_s())
                if clock.monotonic_s() - since_s >= _PATIENCE_S:
                    waiting[hour] = clock.monotonic_s()
                    _order(world, event_type, hour)
            return False

        world.wait(step, f"{event_type} to be closed by overrides", _CLOSED_S)


def closed_until_ms(world: World) -> int:
    """Up to where the first type is closed, Unix milliseconds."""
    with closing(world.hdfs()) as hdfs:
        closings = Closings(hdfs, world.config.storage.root, world.types[:1], world.clock)
        closings.look()
        return closings.closed_until_ms()


def _order(world: World, event_type: str, hour: Hour) -> None:
    world.say(f"  {event_type} {hour} is ordered to close without what is gone")
    world.losses.add_forced(event_type, str(hour))
    with contextlib.suppress(Unavailable):  # it closed meanwhile; or it is ordered again
        world.center.run(
            "bucket",
            "force",
            event_type,
            str(hour),
            "--reason",
            "destroyed",
            "--yes",
            seconds=_COMMAND_S,
        )
