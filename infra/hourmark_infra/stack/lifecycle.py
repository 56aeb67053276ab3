"""One server's life: format, start, wait until it is well, end.

What the steps promise holds after a kill -9 between any two.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark.process.durable import write_durably
from hourmark_infra.stack.health import Health
from hourmark_infra.stack.process import Process, is_alive, send, wait_gone
from hourmark_infra.stack.servers import Server

READY_SECONDS = (
    600.0  # far above the 20 s it takes: a loaded machine is slow, not broken (180 s were seen)
)
STOP_SECONDS = 20.0
LOG_LINES = 12


def server_environment(java: Path) -> dict[str, str]:
    """What the servers inherit: no JVM options of the user's shell, and few malloc arenas, which
    saves memory.
    """
    dropped = (
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "CLASSPATH",
        "KAFKA_HEAP_OPTS",
    )
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "JAVA_HOME": str(java.parent.parent), "MALLOC_ARENA_MAX": "2"}


def prepare(server: Server, environment: dict[str, str]) -> None:
    """Format the server's folder once; a format that was cut short is done over, as no server ever
    ran on it.
    """
    done = server.data / ".formatted"
    if done.is_file() or server.format_command is None:
        server.data.mkdir(parents=True, exist_ok=True)
        return
    shutil.rmtree(server.data, ignore_errors=True)
    server.data.mkdir(parents=True)
    finished = subprocess.run(
        server.format_command(),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        with server.log.open("a") as log:
            log.write(finished.stdout + finished.stderr)
        raise failure(server, "could not format its folder")
    write_durably(done, b"")


def wait_ready(
    server: Server,
    process: Callable[[], Process | None],
    clock: Clock,
    seconds: float = READY_SECONDS,
    abandoned: Callable[[], bool] = lambda: False,
    *,
    whole: bool = False,
) -> Health:
    """Wait until the server says that it is well, with `whole` its cluster too.

    Raises Unavailable where the server ends, is not well in time, or the wait is `abandoned`.
    """
    until = clock.monotonic_s() + seconds
    ask = server.ask_whole if whole and server.ask_whole else server.ask
    while True:
        health = ask()
        if health.ok:
            return health
        if not is_alive(process()):
            raise failure(server, "ended")
        if abandoned():
            raise Unavailable(
                f"{server.name} was not waited for, as another server failed; repeat `hourmark up`"
            )
        if clock.monotonic_s() >= until:
            raise failure(server, f"was not ready after {seconds:.0f} s ({health.detail})")
        clock.sleep(0.25)


def end(processes: Sequence[Process], clock: Clock, seconds: float = STOP_SECONDS) -> bool:
    """End a server's processes, the parent first. True where SIGTERM was enough."""
    if processes:
        send(processes[0], signal.SIGTERM)
        wait_gone(processes[0], seconds, clock)
    # A child may outlive its parent by a moment.
    stubborn = [process for process in processes if not wait_gone(process, 1.0, clock)]
    kill(stubborn, clock, seconds)
    return not stubborn


def kill(processes: Sequence[Process], clock: Clock, seconds: float = STOP_SECONDS) -> None:
    """SIGKILL these, and wait until each is gone."""
    for process in processes:
        send(process, signal.SIGKILL)
        wait_gone(process, seconds, clock)


def failure(server: Server, what: str) -> Unavailable:
    """An error that names the server, its log and the log's last lines."""
    return Unavailable(
        f"{server.name} {what}; its log {server.log} ends with:\n{last_lines(server.log)}\n"
        "Repeat `hourmark up` when that is mended; `hourmark purge` begins anew, without the data."
    )


def last_lines(log: Path) -> str:
    """The end of a log, indented; reads at most 64 KiB of it."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        text = file.read().decode(errors="replace")
        return "\n".join(f"    {line[:400]}" for line in text.splitlines()[-LOG_LINES:])
    return "    (no log yet)"
