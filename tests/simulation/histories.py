"""Random histories: lists of (name of an action, a number from which it draws), so that an example
is small and shrinks.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.simulator.objects import SimulatedObjects
from tests.support.simulator.truth import Broken
from tests.support.simulator.world import World

History = Sequence[tuple[str, int]]

# How often each happens, in proportion.
WEIGHTS: Final[Mapping[str, int]] = {
    "nothing": 1,
    "cut_range": 10,
    "send": 16,
    "send_all": 3,
    "mirror_some": 10,
    "mirror_all": 4,
    "stage": 8,
    "stage_all": 4,
    "report": 6,
    "close_step": 8,
    "flow": 8,
    "haste": 6,
    "tick": 8,
    "read_otherwise": 1,
    "lose_checkpoint": 2,
    "kill_at": 5,
    "go_on_at": 5,
    "pause": 8,
    "wake": 3,
    "retention": 2,
    "host_dies": 1,
    "host_returns": 1,
    "damage": 3,
    "central_retention": 1,
    "mirror_aborts": 2,
    "no_leader": 2,
    "elect": 2,
    "clean": 3,
    "force": 1,
    "host_leaves": 2,
    "service_leaves": 1,
    "second_service": 1,
    "all_leave": 1,
    "keep_checks": 3,
    "lose_ledger": 1,
    "back_up": 2,
    "restore": 1,
    "read_unrecorded": 2,
    "change_value": 1,
    "change_key": 1,
    "outsider": 1,
    "older_service": 1,
}
# What breaks a promise on the way: a fault that closing must notice, and name.
LOSSES: Final[Mapping[str, int]] = {
    "mirror_drops": 1,
    "retention_overtakes": 1,
    "central_overtakes": 1,
    "central_forgets": 1,
}
NUMBERS: Final = 1 << 16


def random_history(seed: int, weights: Mapping[str, int], actions: int = 80) -> History:
    """The history of this seed."""
    r = random.Random(seed)
    names = r.choices(list(weights), list(weights.values()), k=actions)
    return [(name, r.randrange(NUMBERS)) for name in names]


def play(
    history: History,
    folder: Path,
    template: Path,
    *further: str,
    storage: SimulatedObjects | None = None,
) -> World:
    """Play it to its end, with `further` sites, and on an object store if one is given; Broken, or
    another error, where the promise does not hold.
    """
    world = World(folder, template, *further, storage=storage)
    try:
        for name, draw in history:
            world.clock.advance(0.01)
            world.act(name, draw)
        world.drain()
        world.judge.check_end()
    except Exception as error:  # any: it is raised again, with the history that led to it
        error.add_note(f"play({list(history)})")
        raise
    finally:
        world.end()
    return world


def first_broken(
    seeds: range, weights: Mapping[str, int], folder: Path, template: Path, *further: str
) -> tuple[int, Broken] | None:
    """The first seed whose history does not hold, and why; None if all hold."""
    for seed in seeds:
        try:
            play(random_history(seed, weights), folder, template, *further)
        except Broken as error:
            return seed, error
    return None
