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
    """Hold an exclusive lock on `file` within a `with` block, waiting for other processes.

    Args:
        file: Lock file; the file and its folder are created if they do not exist.
        on_busy: Function called once if another process holds the lock, before this call blocks. It
            may raise an exception to avoid waiting.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_busy()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
