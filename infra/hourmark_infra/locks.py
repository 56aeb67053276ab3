"""One at a time, also among processes: the operating system frees the lock of one that was
killed.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_at_a_time(file: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of this file, in a folder that is made; calls `busy` before it waits for
    another, which may raise instead.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
