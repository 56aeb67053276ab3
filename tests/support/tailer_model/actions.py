"""What may happen to a log host, one thing at a time. Each takes its choices from the world's generator."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
from collections.abc import Callable
from typing import Final

from tests.support.tailer_model.truth import File, now_ms
from tests.support.tailer_model.world import FILES_OPEN_MIN, World, size_of

Action = Callable[[World], None]
PLAIN: Final[dict[Action, int]] = {}  # with these alone nothing is lost, and nothing is unknown
HARD: Final[dict[Action, int]] = {}


def plain(weight: int) -> Callable[[Action], Action]:
    """An action by which nothing is destroyed."""
    return lambda action: _among(PLAIN, action, weight)


def hard(weight: int) -> Callable[[Action], Action]:
    """One that may destroy what nobody has read yet, or what the tailer knows."""
    return lambda action: _among(HARD, action, weight)


def _among(weights: dict[Action, int], action: Action, weight: int) -> Action:
    weights[action] = weight
    return action


def _some(world: World, *prefixes: str) -> File | None:
    """A file whose name begins so."""
    plain_ones = [file for file in world.truth.named() if file.name and not file.name.endswith(".gz")]
    found = [file for file in plain_ones if (file.name or "").startswith(prefixes)]
    return world.rng.choice(found) if found and not world.is_away else None


def _make_way(world: World) -> None:
    """app.log.1 becomes app.log.2, and so on, compressed or not."""
    numbered = {}
    for file in world.truth.named():
        stem = (file.name or "").removesuffix(".gz").removeprefix("logs/app.log.")
        if stem.isdigit():
            numbered[int(stem)] = file
    for number in sorted(numbered, reverse=True):
        name = numbered[number].name or ""
        world.rename(name, f"logs/app.log.{number + 1}" + (".gz" if name.endswith(".gz") else ""))


@plain(6)
def append(world: World) -> None:
    if not world.is_away:
        world.write("logs/app.log", world.rng.choice((1, 3, 40, 400)))


@plain(2)
def append_to_an_older_one(world: World) -> None:
    if file := _some(world, "logs/", "store/"):
        world.write(file.name or "", world.rng.choice((1, 5)))


@plain(2)
def begin_a_line(world: World) -> None:
    if not world.is_away:
        world.write("logs/app.log", world.rng.choice((1, 4)), unfinished=True)


@plain(3)
def rotate(world: World) -> None:
    if world.is_away or world.truth.at("logs/app.log") is None:
        return
    _make_way(world)
    world.rename("logs/app.log", "logs/app.log.1")
    if world.rng.random() < 0.5:
        world.write("logs/app.log", 0)


@plain(1)
def rotate_by_date(world: World) -> None:
    """As logrotate's dateext: nothing else is renamed."""
    if not world.is_away and world.truth.at("logs/app.log") is not None:
        world.rename("logs/app.log", f"logs/app.log-2026112400{len(world.done):04}")
        if world.rng.random() < 0.5:
            world.write("logs/app.log", 0)


@plain(2)
def rotate_and_compress_the_one_before(world: World) -> None:
    """As logrotate's delaycompress."""
    rotate(world)
    if not world.is_away and (before := world.truth.at("logs/app.log.2")):
        _pack(world, before)


@plain(1)
def rotate_out_of_the_pattern(world: World) -> None:
    """As logrotate's dateext with another extension; what nobody looked at before is nobody's."""
    file = _some(world, "logs/app.log")
    if file and file.name:
        world.rename(file.name, f"logs/old-{len(world.done)}.log")


@plain(2)
def compress(world: World) -> None:
    """As gzip does: the packed file is whole before the plain one goes."""
    if file := _some(world, "logs/app.log.", "logs/app.log-"):
        _pack(world, file)


def _pack(world: World, file: File) -> None:
    with world.services.lock:
        if file.body.looked_at or world.truth.is_begun(file.body) or "app" in world.services.claims_ms:
            file.looked_at = not file.is_nobodys  # whether or not it was seen before
        else:
            world.doubts.add("packed before the first look, so that nothing tells whether it was read long ago")
            file.looked_at, file.is_nobodys = False, True
        name = file.name or ""
        packed = world.path(f"{name}.gz")
        with world.path(name).open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target)
        shutil.copystat(world.path(name), packed)
        world.path(name).unlink()
        file.name, file.is_followed = f"{name}.gz", False


@plain(2)
def switch(world: World) -> None:
    """The link leads to a new file from now on."""
    name = f"store/{len(world.done)}.log"
    if world.rng.random() < 0.7 and (file := _some(world, "store/")):
        world.write(file.name or "", 2)
    world.write(name, world.rng.choice((0, 3)))
    temporary = world.folder / "current.new"
    temporary.symlink_to(world.path(name))
    with world.services.lock:
        temporary.rename(world.folder / "current.log")
        for file in world.truth.named():
            file.is_followed &= file.source == "app" or file.name == name


@plain(3)
def kill(world: World) -> None:
    if world.is_running:
        world.end(signal.SIGKILL)
        _forget_what_has_no_name(world)


@plain(1)
def stop(world: World) -> None:
    if world.is_running:
        status = world.end(signal.SIGTERM)
        _forget_what_has_no_name(world)
        if status != 0 and not world.disk_is_full and not (status == -signal.SIGTERM and not world.has_reported):
            world.services.findings.append(f"SIGTERM ended it with {status}")


def _forget_what_has_no_name(world: World) -> None:
    if any(file.name is None for file in world.truth.files):
        world.doubts.add("nobody held a deleted file open")


@plain(4)
def start(world: World) -> None:
    if not world.is_running:
        world.start()


@plain(1)
def start_with_few_descriptors(world: World) -> None:
    if not world.is_running:
        world.start(open_files_max=FILES_OPEN_MIN)
        for _ in range(12):
            append_to_a_new_one(world)


def append_to_a_new_one(world: World) -> None:
    if not world.is_away:
        world.write(f"logs/app.log-{len(world.truth.files)}", 2)


@plain(1)
def start_on_a_full_disk(world: World) -> None:
    """Files may grow by a little only; the tailer goes on when it is started again."""
    if not world.is_running:
        room = max(size_of(world.state / f"checkpoint.sqlite{suffix}") for suffix in ("", "-wal")) + world.rng.randrange(20_000)
        world.start(file_bytes_max=max(room, 1 << 16))


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


def append_several_ranges(world: World) -> None:
    if not world.is_away:
        world.write("logs/app.log", 200)


@plain(1)
def ask_to_wait(world: World) -> None:
    """Services say for how long, with each 503."""
    world.services.ask_to_wait(asks=True)


@plain(1)
def take_the_folder_away(world: World) -> None:
    with world.services.lock:
        if not world.is_away:
            world.path("logs").rename(world.path("logs.away"))
            world.services.away_since_ms = now_ms()


@plain(2)
def bring_the_folder_back(world: World) -> None:
    with world.services.lock:
        if world.is_away:
            world.path("logs.away").rename(world.path("logs"))
            world.services.away_since_ms = None


@plain(4)
def settle(world: World) -> None:
    """Nothing is in its way; it must have caught up soon."""
    bring_services_up(world)
    bring_the_folder_back(world)
    world.services.refusing = 0.0
    if world.disk_is_full:
        restart(world)
    if not world.is_running:
        world.start()
    if not world.wait_for_a_look():
        restart(world)
        if not world.wait_for_a_look():
            world.services.findings.append("it does not catch up, though nothing is in its way, even after a restart")


def restart(world: World) -> None:
    """For a tailer without room, or that ended meanwhile."""
    kill(world)
    if not world.is_running:
        world.start()


@hard(2)
def truncate(world: World) -> None:
    if file := _some(world, "logs/app.log"):
        world.doubts.add("truncated")
        world.truncate(file)


@hard(2)
def truncate_and_grow(world: World) -> None:
    """Beyond its old size at once."""
    if file := _some(world, "logs/app.log"):
        world.doubts.add("truncated")
        world.truncate(file, lines=len(file.body.lines) * 2 + 1)


@hard(2)
def copy_and_truncate(world: World) -> None:
    if world.is_away or (file := world.truth.at("logs/app.log")) is None:
        return
    world.doubts.add("truncated")
    _make_way(world)
    with world.services.lock:
        shutil.copyfile(world.path("logs/app.log"), world.path("logs/app.log.1"))
        world.truth.copied(file, "logs/app.log.1")
        world.truncate(file)


@hard(2)
def delete(world: World) -> None:
    if file := _some(world, "logs/app.log", "logs/old-"):
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
    world.start()
    _expect_a_refusal(world, surely=False)


def _expect_a_refusal(world: World, *, surely: bool = True) -> None:
    """Then it is told to read everything again: what it cannot find by a pattern is nobody's from now on."""
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
    with world.services.lock:
        for file in world.truth.files:
            file.looked_at = file.body.looked_at = False
            file.is_nobodys = not file.is_followed
        world.services.claims_ms.clear()
    world.start("--reread")
    if (ended := world.ended_soon()) is not None:  # a kill before it was at work would only be told the same again
        world.services.findings.append(f"--reread ended with {ended}")
