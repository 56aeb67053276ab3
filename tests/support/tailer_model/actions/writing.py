"""What programs write."""

from __future__ import annotations

import os
import time

from tests.support.tailer_model.actions.weights import plain
from tests.support.tailer_model.forms import CONTAINER_LOG, FOLLOWED
from tests.support.tailer_model.packing import suffix_of
from tests.support.tailer_model.truth import File
from tests.support.tailer_model.world import World


def some(world: World, *prefixes: str) -> File | None:
    """A file whose name begins so."""
    plain_ones = [file for file in world.truth.named() if not suffix_of(file.name)]
    found = [file for file in plain_ones if (file.name or "").startswith(prefixes)]
    return world.rng.choice(found) if found and not world.is_away else None


@plain(6)
def append(world: World) -> None:
    if not world.is_away:
        world.write("logs/app.log", world.rng.choice((1, 3, 40, 400)))


@plain(2)
def append_to_an_older_one(world: World) -> None:
    """No copy: until it was read, what others write behind it is not told from what the log had
    there (docs/concepts/rotation.md).
    """
    if (file := some(world, "logs/", "store/")) and not file.is_copy:
        world.write(file.name or "", world.rng.choice((1, 5)))


@plain(2)
def begin_a_line(world: World) -> None:
    if not world.is_away:
        world.write("logs/app.log", world.rng.choice((1, 4)), unfinished=True)


@plain(2)
def write_records(world: World) -> None:
    """Of some lines each."""
    world.write(
        FOLLOWED["records"], world.rng.choice((1, 2, 30, 100)), unfinished=world.rng.random() < 0.2
    )


@plain(2)
def write_in_a_container(world: World) -> None:
    """To both streams, with partial lines."""
    world.write(
        CONTAINER_LOG, world.rng.choice((1, 2, 30, 100)), unfinished=world.rng.random() < 0.2
    )


@plain(2)
def reserve(world: World) -> None:
    """As a writer that allocates ahead, or maps its file; more than a range may have, now
    and then.
    """
    if (file := some(world, "logs/app.log")) and not file.is_copy:
        world.reserve(file, world.rng.choice((0, 1000, 100_000)))


@plain(1)
def set_its_time_ahead(world: World) -> None:
    """As where the clock was set back since it was written."""
    if file := some(world, "logs/app.log"):
        ahead_s = time.time() + world.rng.choice((2, 3600))
        os.utime(world.path(file.name or ""), (ahead_s, ahead_s))


@plain(1)
def set_its_time_back(world: World) -> None:
    """As where the clock was ahead when it was written before, and is right again."""
    if file := some(world, "logs/app.log"):
        with world.services.lock:
            if world.rng.random() < 0.7 and not file.is_copy:
                world.write(file.name or "", 3)
            back_s = time.time() - world.rng.choice((2, 3600))
            os.utime(world.path(file.name or ""), (back_s, back_s))


def append_several_ranges(world: World) -> None:
    if not world.is_away:
        world.write("logs/app.log", 200)


def append_to_a_new_one(world: World) -> None:
    if not world.is_away:
        world.write(f"logs/app.log-{len(world.truth.files)}", 2)
