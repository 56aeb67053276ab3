"""The highest clock of a service that was believed: what may be claimed by it is over for all ranges that follow a restart, too.

It is in the file `clock` beside the checkpoint, in decimal digits, put there before each report and not synced: it outlives a
kill; and after a power cut every clock that is near has gone on beyond it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

FILE: Final = "clock"
_DIGITS: Final = 19


class ClockFloor:
    """Of one tailer; its caller sees to threads. `path`: None: nothing is kept."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._kept_ms = self.ms = _read(path) if path is not None else 0

    def saw(self, clock_ms: int) -> None:
        """A service's clock."""
        self.ms = max(self.ms, clock_ms)

    def keep(self) -> None:
        """Before something is claimed by it. What cannot be written is not: then a restart may forget it."""
        if self._path is None or self.ms == self._kept_ms:
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(descriptor, b"%0*d" % (_DIGITS, self.ms), 0)
                self._kept_ms = self.ms
            finally:
                os.close(descriptor)


def _read(path: Path) -> int:
    with contextlib.suppress(OSError):
        text = path.read_bytes()
        return int(text) if len(text) == _DIGITS and text.isdigit() else 0
    return 0
