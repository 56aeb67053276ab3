"""A file of what is remembered (`mirror.work_dir`/state/…), held by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from hourmark.errors import UsageError


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Nobody else holds this file meanwhile; it waits for who does. UsageError where the folder cannot be used."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock").open("a+b")
    except OSError as error:
        raise UsageError(
            f"mirror.work_dir = {str(path.parent.parent)!r} cannot be used: {error.strerror}; name a folder that this user may "
            "write"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
