"""Exclusive lock on a state file below `mirror.work_dir`, held by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from hourmark.errors import Unavailable, UsageError

LOCK_TIMEOUT_S: Final = 30.0  # time to wait for another holder, so that one that hangs is reported
_POLL_S: Final = 0.1


@contextlib.contextmanager
def exclusive_lock(path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold an exclusive lock on a state file for the duration of the `with` block.

    The lock is held on a file next to the state file, with the suffix `.lock`. The folder is
    created if it is missing.

    Args:
        path: State file to protect.
        timeout_s: Seconds to wait while another process holds the lock.

    Raises:
        Unavailable: Another process still holds the lock after `timeout_s`.
        UsageError: The folder cannot be created or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock").open("a+b")
    except OSError as error:
        raise UsageError(
            f"mirror.work_dir = {str(path.parent.parent)!r} cannot be used: {error.strerror}; "
            "use a folder that this user can write to"
        ) from error
    with lock:
        _wait_for(lock, timeout_s)
        yield


def _wait_for(lock: IO[bytes], timeout_s: float) -> None:
    give_up_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= give_up_s:
                raise Unavailable(
                    f"another process has held {lock.name} for {timeout_s:g} s, perhaps a "
                    f"`hourmark mirror watch` that hangs; `fuser {lock.name}` shows the process"
                ) from error
        time.sleep(_POLL_S)
