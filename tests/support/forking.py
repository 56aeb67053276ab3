"""A world twice: what costs much to play is played once, and goes on in many ways."""

from __future__ import annotations

import contextlib
import copy
import sqlite3
import uuid
from typing import Any

from tests.support.memory_storage import MemoryStorage
from tests.support.simulator.hooks import open_ledger
from tests.support.simulator.ledgers import LedgerFaults
from tests.support.simulator.truth import config_of
from tests.support.simulator.world import World


def fork(world: World) -> World:
    """As it is now, with everything of its own; nobody is paused in it, and its closer has just
    begun. `end` ends either.
    """
    assert not world.zombies
    made = copy.copy(world)
    made.storage, made.zombies = MemoryStorage(), []
    made.storage.restore(world.storage.snapshot())
    made.ledger = world.ledger.with_name(f"{uuid.uuid4().hex}.sqlite")
    now, kept = sqlite3.connect(world.ledger), sqlite3.connect(made.ledger)
    with contextlib.closing(now), contextlib.closing(kept):
        now.backup(kept)
    made.config = config_of(made.ledger)
    made.database = open_ledger(made.config)
    world.pipeline.__dict__.pop("restage", None)  # a played restager is the fork's to make
    made.__dict__.pop("engine", None)
    memo: dict[int, Any] = {
        id(world.storage): made.storage,
        id(world.database): made.database,
        id(world.config): made.config,
        id(world.producers.events): dict(world.producers.events),
    }
    for part in ("clock", "seen", "driver_clock", "producers", "pipeline", "damages", "judge"):
        setattr(made, part, copy.deepcopy(getattr(world, part), memo))
    made.ledgers = LedgerFaults(made)
    made.start_closer()
    return made
