"""Durable storage of the watch state (`state/watch.json`), so that a restart keeps all alarms.

Observations by several processes, such as a watch and a concurrent `--once` or `--accept`, take
turns. If the disk is full, this process keeps the state in memory until it can write again; only a
restart would lose it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from hourmark.errors import Unavailable, UsageError
from hourmark.process.durable import write_durably
from hourmark_mirror.state_lock import LOCK_TIMEOUT_S, exclusive_lock
from hourmark_mirror.watch.observation import WatchState

WATCH_STATE_FILE: Final = "state/watch.json"  # below the work folder
_CONTENT: Final = TypeAdapter(WatchState)


class WatchStateStore:
    """File that stores the state of `mirror watch`, shared by several processes under a lock.

    The state is the data that must be kept between two observations, such as alarms.

    Args:
        work_dir: Work folder of the mirror (`mirror.work_dir`).
        timeout_s: Seconds to wait while another process holds the lock.

    Attributes:
        path: State file, `state/watch.json` below the work folder.
    """

    def __init__(self, work_dir: Path, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.path = work_dir / WATCH_STATE_FILE
        self._timeout_s = timeout_s
        self._unwritten = WatchState()

    @contextlib.contextmanager
    def locked(self) -> Iterator[WatchState]:
        """Lock the state file for the duration of a `with` block, and yield the stored state.

        Yields:
            The stored state; an empty state if the file does not exist. If the last `save` failed,
            the state that this process has kept in memory.

        Raises:
            Unavailable: Another process holds the lock longer than the timeout, or the file cannot
                be read.
            UsageError: The folder cannot be used, or the file is damaged. Remove a damaged file,
                then run `hourmark mirror verify`.
        """
        with exclusive_lock(self.path, self._timeout_s):
            yield max(self._read(), self._unwritten, key=lambda state: state.looked_ms)

    def save(self, state: WatchState) -> None:
        """Write the state to its file and flush it to disk.

        Call this method only within a `with` block of `locked`.

        Args:
            state: New state, which replaces the stored one.

        Raises:
            Unavailable: The file cannot be written. The state is kept in memory and is returned by
                the next `locked`.
        """
        self._unwritten = state
        try:
            write_durably(self.path, _CONTENT.dump_json(state, indent=1))
        except OSError as error:
            raise Unavailable(
                f"{self.path} cannot be written: {error.strerror}; check its disk: the state is "
                "lost if the watch restarts now"
            ) from error
        self._unwritten = WatchState()

    def _read(self) -> WatchState:
        try:
            return _CONTENT.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return WatchState()
        except OSError as error:
            raise Unavailable(
                f"{self.path} cannot be read: {error.strerror}; check its disk"
            ) from error
        except ValidationError as error:
            raise UsageError(
                f"{self.path} is damaged ({error}), and its state is lost: remove the file, and run "
                "`hourmark mirror verify`"
            ) from error
