"""Exclusive file locks between processes.

The operating system releases the lock of a process that was killed.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive_lock(file: Path, on_busy: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive inter-process lock for the duration of a `with` block.

    The lock is an advisory `flock` lock. The operating system releases it if the process is killed.

    Args:
        file: Lock file. The file and its folder are created if they do not exist.
        on_busy: Function called once before waiting, if another process holds the lock. It may
            raise an exception instead of waiting.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_busy()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
