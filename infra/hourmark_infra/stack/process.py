"""Start, identification and termination of the stack's daemon processes.

A process is identified by its process ID and start time, so a process ID that the system reused for
another program is never signaled. Each daemon and its children also have the environment variable
`HOURMARK_STACK_SERVER=<stack folder>::<server>`, its mark. It identifies processes whose ID was
never saved (`up` was killed with kill -9) or whose parent was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from hourmark.clock import Clock

MARK = "HOURMARK_STACK_SERVER"


@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified by its process ID and start time.

    The start time distinguishes it from a later process with the same process ID.

    Attributes:
        pid: Process ID.
        started: Boot ID and start time, as returned by `start_id`.
    """

    pid: int
    started: str


def start_id(pid: int) -> str | None:
    """Return an identifier that distinguishes a process from later ones with the same process ID.

    Args:
        pid: Process ID.

    Returns:
        Boot ID and start time as an opaque string; None if the process does not exist or has
        exited.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): the fields after the name are state (3) … starttime (22). The start time is in clock
    # ticks since boot, which setting the system clock does not change.
    return None if fields[0] in "ZX" else f"{_boot_id()}:{fields[19]}"


def is_alive(process: Process | None) -> bool:
    """Return whether a process is running.

    Args:
        process: Process to check; None if there is no process to check.

    Returns:
        True if the process is running. False if it has exited, even if its process ID is in use
        again, or if `process` is None.
    """
    return process is not None and start_id(process.pid) == process.started


def spawn(command: Sequence[str], environment: Mapping[str, str], mark: str, log: Path) -> Process:
    """Start a daemon process in a new session.

    Args:
        command: Path of the executable and its arguments. `PATH` is not searched.
        environment: Environment variables of the daemon.
        mark: Value of the additional environment variable `HOURMARK_STACK_SERVER`, which identifies
            the daemon and its child processes for `find_by_mark`.
        log: File to which stdout and stderr are appended. Its folder is created if necessary.

    Returns:
        The process, which may already have exited.

    Raises:
        OSError: The executable cannot be started, or the log file cannot be created.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        list(command),
        {**environment, MARK: mark},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    started = start_id(pid)
    while start_id(pid) and not _has_environment(pid):
        time.sleep(0.001)
    return Process(pid, started or "ended immediately")


def _has_environment(pid: int) -> bool:
    # exec returns to the parent before the new program's environment is set up; until then
    # /proc/<pid>/environ reads as empty.
    try:
        return bool(Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:
        return True


def find_by_mark_prefix(prefix: str) -> dict[str, list[Process]]:
    """Find the running processes of this user by a prefix of their mark.

    The mark is the value of the environment variable `HOURMARK_STACK_SERVER`, which `spawn` sets
    for a daemon. Child processes inherit it.

    Args:
        prefix: First characters of the mark.

    Returns:
        Maps each mark to its processes, the oldest first; empty if no process matches.
    """
    found: defaultdict[str, list[tuple[float, int, Process]]] = defaultdict(list)
    for candidate in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if candidate.uids().real != os.getuid():
                continue
            mark, pid = candidate.environ().get(MARK, ""), candidate.pid
            if mark.startswith(prefix) and (started := start_id(pid)):
                found[mark].append((candidate.create_time(), pid, Process(pid, started)))
    return {mark: [process for *_, process in sorted(several)] for mark, several in found.items()}


def find_by_mark(mark: str) -> list[Process]:
    """Find a running daemon and its child processes by their mark.

    Only processes of this user are found.

    Args:
        mark: Value of the environment variable `HOURMARK_STACK_SERVER`, as passed to `spawn`.

    Returns:
        The running processes, the oldest first; empty if there are none.
    """
    return find_by_mark_prefix(mark).get(mark, [])


def send_signal(process: Process, number: signal.Signals) -> bool:
    """Send a signal to a process unless it has exited.

    The start time of the process is checked first, so another process with the same process ID
    never receives the signal.

    Args:
        process: Process that receives the signal.
        number: Signal to send.

    Returns:
        True if the process was running, False if it had already exited.
    """
    if not is_alive(process):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
    return True


def wait_for_exit(process: Process, seconds: float, clock: Clock) -> bool:
    """Wait for a process to exit.

    Args:
        process: Process to wait for.
        seconds: Timeout in seconds.
        clock: Clock used for the timeout and the pauses.

    Returns:
        True if the process has exited; False if it is still running after the timeout.
    """
    until = clock.monotonic_s() + seconds
    while is_alive(process):
        if clock.monotonic_s() >= until:
            return False
        clock.sleep(0.05)
    return True


def memory_mb(process: Process) -> int:
    """Return the resident memory of a process, without its child processes.

    Args:
        process: Process to measure.

    Returns:
        Memory in megabytes (10^6 bytes), rounded down; 0 if the process has exited.
    """
    try:
        return int(psutil.Process(process.pid).memory_info().rss / 1e6) if is_alive(process) else 0
    except psutil.Error:
        return 0


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
