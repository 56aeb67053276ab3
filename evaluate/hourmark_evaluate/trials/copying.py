"""What trials of the mirror have in common."""

from __future__ import annotations

from hourmark.errors import Unavailable
from hourmark.kafka.mirror import MirrorWorkers
from hourmark.kafka.mirror import read_workers as workers_of
from hourmark_evaluate.stage import Stage
from hourmark_evaluate.world import World

FIRST_COPY_SECONDS = 60.0  # for a mirror to find a new topic: Hourmark's looks every few seconds


def begins(stage: Stage) -> bool:
    """Whether there is a mirror, and it has begun to copy this trial's topics."""
    watch = stage.watch
    return watch is not None and stage.world.wait(
        lambda: watch.arrived > 0, FIRST_COPY_SECONDS, watch.look
    )


def no_copy(stage: Stage) -> str:
    """Why nothing of the mirror could be tried."""
    world, watch = stage.world, stage.watch
    prefix = world.wish.mirrored_prefix
    if watch is None:
        return "the mirror was not tried: needs --central HOST:PORT"
    if watch.trouble:
        return f"the mirror could not be watched: {watch.trouble}"
    return (
        f"the mirror copied nothing of a new topic {prefix}… to {world.alias}.{prefix}… within "
        f"{FIRST_COPY_SECONDS:.0f} s: "
        "does it run, copy such topics (--mirrored-prefix), name its copies so (--alias; not "
        "the IdentityReplicationPolicy), "
        "and look for new ones often enough (MirrorMaker's refresh.topics.interval.seconds, by "
        "default 600)?"
    )


def workers(world: World) -> MirrorWorkers:
    """Who is there now, as the target says; nobody where it does not."""
    return _told(world) or MirrorWorkers()


def nobody_shares(world: World) -> bool:
    """Whether the target says that nobody is there."""
    return _told(world) == MirrorWorkers()


def _told(world: World) -> MirrorWorkers | None:
    """None: it does not say."""
    if world.central is None:
        return None
    try:
        return workers_of(world.central.cluster, world.alias)
    except Unavailable:
        return None


def told_workers(world: World) -> str:
    """How many there are, as a note."""
    count = len(workers(world).hosts)
    known = f"the mirror ran with {count} worker{'' if count == 1 else 's'}"
    return known if count else "how many workers the mirror has could not be told"
