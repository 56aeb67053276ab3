"""The tailer begins and ends, in all conditions."""

from __future__ import annotations

import signal
from typing import Final

from tests.support.tailer_model.actions.services import bring_services_up
from tests.support.tailer_model.actions.weights import plain
from tests.support.tailer_model.actions.writing import append_to_a_new_one, some
from tests.support.tailer_model.truth import now_ms
from tests.support.tailer_model.world import FILES_OPEN_MIN, World, size_of

_JUMPS_MS: Final = (
    -86_400_000,
    -7_200_000,
    -60_000,
    -2_000,
    0,
    2_000,
    60_000,
    7_200_000,
    86_400_000,
)


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
        was_early = status == -signal.SIGTERM and not world.has_reported
        if status != 0 and not world.disk_is_full and not was_early:
            world.services.findings.append(f"SIGTERM ended it with {status}")


def _forget_what_has_no_name(world: World) -> None:
    if any(file.name is None for file in world.truth.files):
        world.doubts.add("nobody held a deleted file open")


@plain(4)
def start(world: World) -> None:
    if not world.is_running:
        world.start()


@plain(2)
def copy_up_and_start(world: World) -> None:
    """As a container that writes to a log of its image: overlayfs copies it up, with another birth
    time under its inode.

    What was read of it tells that it is the same log, so only logs are taken of which enough was
    read and known for that.
    """
    if world.is_running or (file := some(world, "logs/app.log")) is None:
        return
    if world.truth.is_told(file) and not world.doubts and not world.rereads:
        world.copy_up(file)
        if world.rng.random() < 0.5 and not file.is_copy:
            world.write(file.name or "", 3)
        world.start()


@plain(1)
def start_with_few_descriptors(world: World) -> None:
    if not world.is_running:
        world.start(open_files_max=FILES_OPEN_MIN)
        for _ in range(12):
            append_to_a_new_one(world)


@plain(1)
def start_on_a_full_disk(world: World) -> None:
    """Files may grow by a little only; the tailer goes on when it is started again."""
    if not world.is_running:
        room = max(
            size_of(world.state / f"checkpoint.sqlite{suffix}") for suffix in ("", "-wal")
        ) + world.rng.randrange(20_000)
        world.start(file_bytes_max=max(room, 1 << 16))


@plain(2)
def reload(world: World) -> None:
    """It goes on with other ranges, under the same process id."""
    if world.is_running and world.has_reported and not world.services.asks_to_wait:
        world.range_bytes = world.rng.choice((2048, 4096, 8192))
        world.configure()
        world.begins_anew()
        world.reload()
        _forget_what_has_no_name(world)


@plain(1)
def reload_what_is_not_in_order(world: World) -> None:
    """It says so, and goes on as it was."""
    if world.is_running and world.has_reported and not (world.was_reloaded or world.disk_is_full):
        world.config.write_text(f"{world.config.read_text()}\nno_setting = 1\n")
        if not world.reloads_and_says("the configuration is rejected"):
            world.services.findings.append("it does not say that a configuration is not in order")
        world.configure()


@plain(1)
def reload_what_a_start_refuses(world: World) -> None:
    """Settings that are in order by themselves. It says why not, and goes on as it was, as the same
    host.
    """
    if world.is_running and world.has_reported and not (world.was_reloaded or world.disk_is_full):
        good = world.config.read_text()
        bad = {
            "another folder": good.replace('/state"', '/state2"'),
            "no service": good.replace("http://", "htp://"),
            "no valid token": good.replace("[tailer]", '[tailer]\ntoken_file = "/nowhere"'),
            "a port that is taken": (
                f'{good}\n[[tailer.sources]]\nname = "net"\ninput = '
                f'"syslog+tcp://127.0.0.1:{_port(world)}"\n'
            ),
        }
        world.config.write_text(bad[world.rng.choice(list(bad))])
        if not world.reloads_and_says("the configuration is rejected"):
            world.services.findings.append("it takes what a start refuses")
        world.configure()


def _port(world: World) -> str:
    """One that is taken: a service's."""
    return world.services.urls[0].rpartition(":")[2]


@plain(2)
def set_the_clock(world: World) -> None:
    """This host's wall clock jumps. Nothing waits for it to come to where it was: it catches up if
    nothing is in its way.
    """
    world.set_clock(world.rng.choice(_JUMPS_MS))
    if (
        world.is_running
        and world.has_reported
        and not world.disk_is_full
        and world.rng.random() < 0.5
    ):
        take_all_out_of_its_way(world)
        if not world.wait_for_a_look() and world.is_running:
            world.services.findings.append("it does not catch up after its wall clock was set")


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
    take_all_out_of_its_way(world)
    if world.disk_is_full:
        restart(world)
    if not world.is_running:
        world.start()
    if not world.wait_for_a_look():
        restart(world)
        if not world.wait_for_a_look():
            world.services.findings.append(
                "it does not catch up, though nothing is in its way, even after a restart"
            )


def take_all_out_of_its_way(world: World) -> None:
    """Services take what they are sent, and the folder with the logs is there."""
    bring_services_up(world)
    bring_the_folder_back(world)
    world.services.refusing = 0.0


def restart(world: World) -> None:
    """For a tailer without room, or that ended meanwhile."""
    kill(world)
    if not world.is_running:
        world.start()
