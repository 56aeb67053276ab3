"""What trials of the mirror have in common."""

from __future__ import annotations

from hourmark.errors import Unavailable
from hourmark.mirror_workers import Workers
from hourmark.mirror_workers import workers as workers_of
from hourmark_infra.evaluate.stage import Stage
from hourmark_infra.evaluate.world import World

FIRST_COPY_SECONDS = 60.0  # for a mirror to find a new topic: it looks every few seconds, by default every ten minutes


def begins(stage: Stage) -> bool:
    """Whether the mirror has begun to copy this trial's topics."""
    watch = stage.watch
    return watch is not None and stage.world.wait(lambda: watch.arrived > 0, FIRST_COPY_SECONDS, watch.look)


def no_copy(world: World) -> str:
    """Why nothing of the mirror could be tried."""
    prefix = world.wish.mirrored_prefix
    return (
        f"the mirror copied nothing of a new topic {prefix}… to {world.alias}.{prefix}… within {FIRST_COPY_SECONDS:.0f} s: "
        "does it run, and copy such topics (--mirrored-prefix, --alias)?"
    )


def workers(world: World) -> Workers:
    """Who is there now, as the target says; nobody where it does not."""
    if world.central is None:
        return Workers()
    try:
        return workers_of(world.central.cluster, world.alias)
    except Unavailable:
        return Workers()


def told_workers(world: World) -> str:
    """How many there are, as a note."""
    count = len(workers(world).hosts)
    known = f"the mirror ran with {count} worker{'' if count == 1 else 's'}"
    return known if count else "how many workers the mirror has could not be told"
