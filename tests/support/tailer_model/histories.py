"""Random histories of a log host, and how one is played."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from tests.support.tailer_model.actions import running
from tests.support.tailer_model.actions.weights import HARD, PLAIN, Action
from tests.support.tailer_model.judge import judge
from tests.support.tailer_model.spawner import Spawner
from tests.support.tailer_model.world import World

STEPS_MAX: Final = 25
NAMES: Final = {action.__name__: action for action in (*PLAIN, *HARD)}


def random_history(rng: random.Random) -> list[str]:
    """Names of actions.

    Every other history has none that destroys anything: nothing may be unknown in it.
    """
    weights = PLAIN if rng.random() < 0.5 else PLAIN | HARD
    names = [
        action.__name__
        for action in rng.choices(
            list(weights), list(weights.values()), k=rng.randrange(5, STEPS_MAX)
        )
    ]
    return ["append", "start", *names]


def play(history: list[str], seed: int, folder: Path, spawner: Spawner, planted: str = "") -> World:
    """A history to its end: all is put in order, and drained; `judged` then says what was wrong."""
    world = World(folder, seed, spawner, planted)
    with world.playing():
        for name in history:
            world.done.append(name)
            action: Action = NAMES[name]
            world.notice_an_end()
            action(world)
            world.pause()
        running.settle(world)
        if world.is_running:
            running.stop(world)
        status = world.drained()
        if status != 0:
            world.services.findings.append(f"drained with exit status {status}")
        world.services.findings[:] = judge(world)
    return world
