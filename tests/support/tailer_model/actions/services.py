"""What the delivery services do."""

from __future__ import annotations

from tests.support.tailer_model.actions.weights import plain
from tests.support.tailer_model.actions.writing import append_several_ranges
from tests.support.tailer_model.world import World


@plain(2)
def take_a_service_down(world: World) -> None:
    world.services.set_down(world.rng.randrange(2), True)


@plain(3)
def bring_services_up(world: World) -> None:
    for number in range(2):
        world.services.set_down(number, False)
    with world.services.lock:
        world.services.to_be_stuck.clear()
        world.services.stuck.clear()
    world.services.ask_to_wait(asks=False)


@plain(1)
def refuse_some(world: World) -> None:
    world.services.refusing = world.rng.choice((0.0, 0.2, 0.5))


@plain(2)
def refuse_one_of_several(world: World) -> None:
    """Nobody takes one of the ranges that follow, whatever becomes of those behind it."""
    before, status = world.rng.randrange(4), world.rng.choice((503, 500, 400))
    world.services.to_be_stuck[:] = [*[200] * before, status]
    append_several_ranges(world)


@plain(1)
def ask_to_wait(world: World) -> None:
    """Services say for how long, with each 503; one that begins anew meanwhile would not have heard
    it.
    """
    if not world.was_reloaded:
        world.services.ask_to_wait(asks=True)
