"""What becomes of logs that are full, or of yesterday: nothing is destroyed."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from tests.support.tailer_model.actions.weights import plain
from tests.support.tailer_model.actions.writing import some
from tests.support.tailer_model.forms import CONTAINER_LOG, FOLLOWED
from tests.support.tailer_model.packing import SUFFIXES, packed, suffix_of
from tests.support.tailer_model.truth import File
from tests.support.tailer_model.world import World

from hourmark.process.file_identity import identify


def make_way(world: World) -> None:
    """app.log.1 becomes app.log.2, and so on, compressed or not."""
    numbered = {}
    for file in world.truth.named():
        stem = (file.name or "").removesuffix(suffix_of(file.name)).removeprefix("logs/app.log.")
        if stem.isdigit():
            numbered[int(stem)] = file
    for number in sorted(numbered, reverse=True):
        name = numbered[number].name or ""
        world.rename(name, f"logs/app.log.{number + 1}" + suffix_of(name))


@plain(3)
def rotate(world: World) -> None:
    if world.is_away or world.truth.at("logs/app.log") is None:
        return
    make_way(world)
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
        pack(world, before)


@plain(1)
def rotate_out_of_the_pattern(world: World) -> None:
    """As logrotate's dateext with another extension; what nobody looked at before is nobody's."""
    file = some(world, "logs/app.log")
    if file and file.name:
        world.rename(file.name, f"logs/old-{len(world.done)}.log")


@plain(2)
def compress(world: World) -> None:
    """As gzip and its like do: the packed file is whole before the plain one goes."""
    if file := some(world, "logs/app.log.", "logs/app.log-"):
        pack(world, file)


def pack(world: World, file: File, *, is_whole: bool = True) -> None:
    if file.links:
        return  # as gzip refuses to
    with world.services.lock:
        if (
            file.body.looked_at
            or world.truth.is_begun(file.body)
            or "app" in world.services.claims_ms
        ):
            file.looked_at = not file.is_nobodys  # whether or not it was seen before
        else:
            world.doubts.add(
                "packed before the first look, so that nothing tells whether it was read long ago"
            )
            file.looked_at, file.is_nobodys = False, True
        world.reserve(file, 0)  # as its writer does when it closes it
        name = file.name or ""
        if _is_empty_and_older_than_its_birth(world.path(name)):
            world.doubts.add("an empty archive that is older than the file may be another file's")
        suffix = world.rng.choice(SUFFIXES)
        content = packed(world.path(name).read_bytes(), suffix)
        if not is_whole:
            content = content[: world.rng.randrange(len(content))]
            file.body.destroyed = True
        with world.path(name + suffix).open("wb", buffering=0) as target:
            half = world.rng.randrange(len(content) + 1)
            target.write(content[:half])
            time.sleep(world.rng.choice((0.0, 0.0, 0.03)))
            target.write(content[half:])
        shutil.copystat(world.path(name), world.path(name + suffix))
        world.path(name).unlink()
        file.name, file.is_followed = name + suffix, False


def _is_empty_and_older_than_its_birth(path: Path) -> bool:
    """The clock that the model sets back does not reach the kernel's birth times."""
    with path.open("rb") as opened:
        status, birth_ns = os.fstat(opened.fileno()), identify(opened.fileno()).birth_ns
    return status.st_size == 0 and status.st_mtime_ns < birth_ns


@plain(1)
def give_a_second_name(world: World) -> None:
    """As `cp -l` and backups do; one that matches, or one that does not."""
    if file := some(world, "logs/app.log"):
        world.link(
            file,
            f"logs/{world.rng.choice(('app.log-kept', 'kept'))}-{len(world.truth.files)}-{len(world.done)}",
        )


@plain(1)
def remove_one_of_two_names(world: World) -> None:
    """Nothing is destroyed by that."""
    linked = [file for file in world.truth.named() if file.links]
    if linked and not world.is_away:
        world.unlink(world.rng.choice(linked))


@plain(2)
def rotate_records_or_containers(world: World) -> None:
    """As log4j and kubelet do: by time, and packed later."""
    live = world.rng.choice((FOLLOWED["records"], CONTAINER_LOG))
    if (old := some(world, f"{live}.")) and world.rng.random() < 0.7:
        pack(world, old)
    if world.truth.at(live) is not None:
        world.rename(live, f"{live}.20261124-{len(world.done):06}")


@plain(2)
def switch(world: World) -> None:
    """The link leads to a new file from now on."""
    name = f"store/{len(world.done)}.log"
    if world.rng.random() < 0.7 and (file := some(world, "store/")):
        world.write(file.name or "", 2)
    world.write(name, world.rng.choice((0, 3)))
    temporary = world.folder / "current.new"
    temporary.symlink_to(world.path(name))
    with world.services.lock:
        temporary.rename(world.folder / "current.log")
        for file in world.truth.named():
            file.is_followed &= file.source == "app" or file.name == name
