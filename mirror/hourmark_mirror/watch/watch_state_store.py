"""What a watch remembers from one look to the next, durably (`work_dir/state/watch.json`): a
restart forgets no alarm.

Looks of several processes, such as a watch and a `--once` or `--accept` beside it, take turns.
Where the disk is full, this process remembers by itself until it can write again: its looks go on
from each other, and only a restart would forget.
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
_MEMORY: Final = TypeAdapter(WatchState)


class WatchStateStore:
    """Errors name the file: UsageError where it cannot be used or is damaged, Unavailable where it
    is not read or written now.
    """

    def __init__(self, work_dir: Path, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.path = work_dir / WATCH_STATE_FILE
        self._timeout_s = timeout_s
        self._unwritten = WatchState()

    @contextlib.contextmanager
    def locked(self) -> Iterator[WatchState]:
        """What is remembered; nobody else looks meanwhile. Unavailable where another's look does
        not end within `timeout_s`.
        """
        with exclusive_lock(self.path, self._timeout_s):
            yield max(self._read(), self._unwritten, key=lambda memory: memory.looked_ms)

    def save(self, memory: WatchState) -> None:
        """Write it, within a turn."""
        self._unwritten = memory
        try:
            write_durably(self.path, _MEMORY.dump_json(memory, indent=1))
        except OSError as error:
            raise Unavailable(
                f"{self.path} cannot be written: {error.strerror}; see to its disk: a "
                "restart of the watch would forget"
            ) from error
        self._unwritten = WatchState()

    def _read(self) -> WatchState:
        try:
            return _MEMORY.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return WatchState()
        except OSError as error:
            raise Unavailable(
                f"{self.path} cannot be read: {error.strerror}; see to its disk"
            ) from error
        except ValidationError as error:
            raise UsageError(
                f"{self.path} is damaged ({error}); what it remembered is lost: remove "
                "it, and ask `hourmark mirror verify`"
            ) from error
