"""The life cycle of one server: format, start, wait until healthy, stop.

A kill -9 between any two steps leaves a state from which the steps can be repeated.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark.process.durable import write_durably
from hourmark_infra.stack.health import Health
from hourmark_infra.stack.process import Process, is_alive, send_signal, wait_for_exit
from hourmark_infra.stack.servers import Server


def check_host_name() -> None:
    """Check that the host name of this machine resolves to an address.

    HDFS and Spark require this. Call the function before starting servers.

    Raises:
        Unavailable: The host name does not resolve. The message contains the line to add to
            `/etc/hosts`.
    """
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        raise Unavailable(
            f"this machine's host name, {name}, does not resolve ({error}), but HDFS and Spark "
            f"require it: add the line `127.0.1.1 {name}` to /etc/hosts, then repeat the command"
        ) from error


# Far above the usual 20 s: a loaded machine is slow, not broken (180 s have been observed).
READY_SECONDS = 600.0
STOP_SECONDS = 20.0
LOG_LINES = 12
_FREE_MB_MIN = 200  # below it, a full disk is probably the cause of a failure


def server_environment(java: Path) -> dict[str, str]:
    """Return the environment variables for Java server processes.

    The result contains the variables of this process, except `CLASSPATH` and variables with JVM
    options, such as `JAVA_TOOL_OPTIONS`. `JAVA_HOME` is set. `MALLOC_ARENA_MAX` is set to a low
    value to save memory.

    Args:
        java: Path of the `java` executable, `JAVA_HOME/bin/java`.

    Returns:
        Names and values of the variables. The environment of this process is not changed.
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


def prepare_data_folder(server: Server, environment: dict[str, str]) -> None:
    """Create the data folder of a server, and format it if the server requires this.

    A folder is formatted only once. If formatting was interrupted, the folder is emptied and
    formatted again.

    Args:
        server: Server whose folder to prepare.
        environment: Environment variables of the format command.

    Raises:
        Unavailable: The format command failed. Its output is in the log of the server.
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
        raise server_error(server, "could not format its data folder")
    write_durably(done, b"")


def wait_ready(
    server: Server,
    process: Callable[[], Process | None],
    clock: Clock,
    seconds: float = READY_SECONDS,
    abandoned: Callable[[], bool] = lambda: False,
    *,
    whole_cluster: bool = False,
    on_unhealthy: Callable[[Health], None] = lambda _: None,
) -> Health:
    """Wait until a server is healthy.

    Args:
        server: Server to check.
        process: Function that returns the process of the server, or None if it is not running.
        clock: Clock used for the timeout and the pauses.
        seconds: Timeout in seconds.
        abandoned: Function that returns True to stop waiting.
        whole_cluster: Whether the server must also see all other servers of its cluster.
        on_unhealthy: Function that receives the result of each unsuccessful health check.

    Returns:
        The result of the successful health check.

    Raises:
        Unavailable: The server exited, did not become healthy in time, or `abandoned` returned
            True.
    """
    until = clock.monotonic_s() + seconds
    check = (whole_cluster and server.check_cluster_health) or server.check_health
    while True:
        health = check()
        if health.ok:
            return health
        on_unhealthy(health)
        if not is_alive(process()):
            raise server_error(server, "exited unexpectedly")
        if abandoned():
            raise Unavailable(
                f"the wait for {server.name} was canceled because another server failed; repeat "
                "`hourmark up`"
            )
        if clock.monotonic_s() >= until:
            detail = f"{health.detail}; {health.do}" if health.do else health.detail
            raise server_error(server, f"was not ready after {seconds:.0f} s ({detail})")
        clock.sleep(0.25)


def stop_processes(
    processes: Sequence[Process], clock: Clock, seconds: float = STOP_SECONDS
) -> bool:
    """Stop the processes of one server with SIGTERM, and kill those that do not exit in time.

    Args:
        processes: The processes of the server, the parent first. Only the parent receives SIGTERM.
        clock: Clock used for waiting.
        seconds: Maximum time in seconds to wait for the parent to exit.

    Returns:
        True if all processes exited without SIGKILL, or if `processes` is empty.
    """
    if processes:
        send_signal(processes[0], signal.SIGTERM)
        wait_for_exit(processes[0], seconds, clock)
    # A child may outlive its parent by a moment.
    remaining = [process for process in processes if not wait_for_exit(process, 1.0, clock)]
    kill_processes(remaining, clock, seconds)
    return not remaining


def kill_processes(
    processes: Sequence[Process], clock: Clock, seconds: float = STOP_SECONDS
) -> None:
    """Send SIGKILL to processes, one after another, and wait for each of them to exit.

    The call returns without an error if a process does not exit in time.

    Args:
        processes: Processes to kill.
        clock: Clock used for waiting.
        seconds: Maximum time in seconds to wait for each process.
    """
    for process in processes:
        send_signal(process, signal.SIGKILL)
        wait_for_exit(process, seconds, clock)


def server_error(server: Server, what: str) -> Unavailable:
    """Create an exception for the failure of a server, to be raised by the caller.

    The message contains the path and the last lines of the server's log, and the commands that
    start or delete the stack. It names the disk of the log if that is almost full.

    Args:
        server: Server that failed.
        what: Text that follows the server's name in the message, such as `exited unexpectedly`.
    """
    return Unavailable(
        f"{server.name} {what}{_describe_full_disk(server.log.parent)}; its log {server.log} ends "
        f"with:\n{last_lines(server.log)}\n"
        "Repeat `hourmark up` after fixing the problem; `hourmark purge` deletes the stack and its "
        "data, so that the next `up` creates a new one."
    )


def _describe_full_disk(folder: Path) -> str:
    with suppress(OSError):
        if (free_mb := shutil.disk_usage(folder).free // 10**6) < _FREE_MB_MIN:
            return f"; the disk of {folder} has only {free_mb} MB left"
    return ""


def last_lines(log: Path) -> str:
    """Return the last lines of a log file as indented text, for use in an error message.

    Args:
        log: Path of the log file. Only its last 64 KiB are read.

    Returns:
        At most 12 lines of at most 400 characters; `(no log yet)` if the file does not exist.
    """
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        text = file.read().decode(errors="replace")
        return "\n".join(f"    {line[:400]}" for line in text.splitlines()[-LOG_LINES:])
    return "    (no log yet)"
