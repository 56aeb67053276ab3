"""A file of what is remembered (`mirror.work_dir`/state/…), held by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from hourmark.errors import Unavailable, UsageError

LOCK_TIMEOUT_S: Final = (
    30.0  # for who holds it, before it is given up: so whoever does and stands still is named
)
_POLL_S: Final = 0.1


@contextlib.contextmanager
def exclusive_lock(path: Path, turn_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Nobody else holds this file meanwhile. Unavailable where another does for so long; UsageError
    for an unusable folder.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock").open("a+b")
    except OSError as error:
        raise UsageError(
            f"mirror.work_dir = {str(path.parent.parent)!r} cannot be used: {error.strerror}; "
            "name a folder that this user may "
            "write"
        ) from error
    with lock:
        _wait_for(lock, turn_s)
        yield


def _wait_for(lock: IO[bytes], turn_s: float) -> None:
    give_up_s = time.monotonic() + turn_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= give_up_s:
                raise Unavailable(
                    f"another process has held {lock.name} for {turn_s:g} s, perhaps a "
                    "`hourmark mirror watch` that stands "
                    f"still; `fuser {lock.name}` tells which"
                ) from error
        time.sleep(_POLL_S)
