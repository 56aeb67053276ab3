"""What may destroy what nobody has read yet, or what the tailer knows."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from tests.support.tailer_model.actions.rotation import make_way, pack
from tests.support.tailer_model.actions.weights import hard
from tests.support.tailer_model.actions.writing import some
from tests.support.tailer_model.world import World, size_of


@hard(2)
def truncate(world: World) -> None:
    if file := some(world, "logs/app.log"):
        world.doubts.add("truncated")
        world.truncate(file)


@hard(2)
def truncate_and_grow(world: World) -> None:
    """Beyond its old size at once."""
    if file := some(world, "logs/app.log"):
        world.doubts.add("truncated")
        world.truncate(file, lines=len(file.body.lines) * 2 + 1)


@hard(2)
def copy_and_truncate(world: World) -> None:
    if world.is_away or (file := world.truth.at("logs/app.log")) is None:
        return
    world.doubts.add("truncated")
    make_way(world)
    world.reserve(file, 0)
    content = world.path("logs/app.log").read_bytes()
    with world.path("logs/app.log.1").open(
        "wb", buffering=0
    ) as target:  # what is written meanwhile, it may have or not
        half = world.rng.randrange(len(content) + 1)
        for part in (content[:half], content[half:]):
            target.write(part)
            world.stamp("logs/app.log.1")
            time.sleep(world.rng.choice((0.0, 0.0, 0.03)))
        if world.rng.random() < 0.3:
            world.write("logs/app.log", 3)
            target.write(world.path("logs/app.log").read_bytes()[len(content) :])
            world.stamp("logs/app.log.1")
    with world.services.lock:
        copy = world.truth.copied(file, "logs/app.log.1")
    time.sleep(world.rng.choice((0.0, 0.0, 0.03)))
    for _ in range(world.rng.choice((0, 0, 1, 3))):
        world.write(
            "logs/app.log", world.rng.choice((1, 3, 40))
        )  # logrotate's to lose, where it is not read in time
        time.sleep(world.rng.choice((0.0, 0.05, 0.1)))
    with world.services.lock:
        world.truth.left_in(copy, file)
        world.truncate(file)


@hard(1)
def pack_and_cut_off(world: World) -> None:
    """As where the disk was full, or the machine went down, and somebody removed the plain one
    nevertheless.
    """
    if (file := some(world, "logs/app.log.", "logs/app.log-")) and not file.links:
        world.doubts.add("packed, and cut off")
        pack(world, file, is_whole=False)


@hard(2)
def delete(world: World) -> None:
    if file := some(world, "logs/app.log", "logs/old-"):
        if not (world.is_running and file.looked_at):
            world.doubts.add("deleted while nobody held it open")
        world.delete(file)


@hard(1)
def delete_and_make_again(world: World) -> None:
    """Its inode may be used again at once."""
    file = world.truth.at("logs/app.log")
    if file is not None and not world.is_away:
        world.doubts.add("deleted")
        world.delete(file)
        world.write("logs/app.log", 3)


@hard(2)
def delete_and_put_something_else(world: World) -> None:
    """Its inode may be that of a link, a socket, a pipe or a folder from now on, which is no
    log.
    """
    if file := some(world, "logs/app.log", "logs/old-"):
        if not (world.is_running and file.looked_at):
            world.doubts.add("deleted while nobody held it open")
        world.delete(file)
        for number in range(3):
            _put_something(world, world.path(f"logs/app.log-other-{len(world.done)}-{number}"))


def _put_something(world: World, path: Path) -> None:
    kind = world.rng.choice(("dangling", "loop", "socket", "pipe", "folder"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        os.mknod(path, 0o600 | stat.S_IFSOCK)
    else:
        path.symlink_to("nowhere" if kind == "dangling" else path.name)


@hard(1)
def lose_the_checkpoint(world: World) -> None:
    if not world.is_running and world.state.exists():
        for suffix in ("", "-wal", "-shm"):
            (world.state / f"checkpoint.sqlite{suffix}").unlink(missing_ok=True)
        world.start()
        _expect_a_refusal(world)


@hard(1)
def damage_the_checkpoint(world: World) -> None:
    """Flip a byte, or cut the end off: of the database, or of its log."""
    if world.is_running:
        return
    path = world.state / world.rng.choice(("checkpoint.sqlite", "checkpoint.sqlite-wal"))
    if not (size := size_of(path)):
        return
    at = world.rng.randrange(size)
    if world.rng.random() < 0.3:
        os.truncate(path, at)
    else:
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ (1 << world.rng.randrange(8))]))
    world.doubts.add("the checkpoint was damaged")
    _forgive(world)
    world.start()
    _expect_a_refusal(world, surely=False)


def _expect_a_refusal(world: World, *, surely: bool = True) -> None:
    """Then it is told to read everything again: what it cannot find by a pattern is nobody's from
    now on.
    """
    host_id_known = (world.state / "host-id").exists()
    ended = world.ended_soon()
    if ended is None:
        if surely and host_id_known:
            world.services.findings.append("it went on without its checkpoint")
        return
    if ended != 2:
        world.services.findings.append(f"without its checkpoint it ended with {ended}")
    world.doubts.add("the checkpoint was lost")
    world.rereads += 1
    _forgive(world)
    with world.services.lock:
        for file in world.truth.files:
            file.looked_at = file.body.looked_at = False
            file.is_nobodys = not file.is_followed
        world.services.claims_ms.clear()
    world.start("--reread")
    if (
        ended := world.ended_soon()
    ) is not None:  # a kill before it was at work would only be told the same again
        world.services.findings.append(f"--reread ended with {ended}")


def _forgive(world: World) -> None:
    """What was counted before may be forgotten, and one more loss of each source is unknown
    then.
    """
    with world.services.lock:
        for sent in world.services.received.values():
            sent.forgive()
            sent.unknown_max += 1
