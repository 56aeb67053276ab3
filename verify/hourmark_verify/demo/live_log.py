"""A log file as applications write it: it grows line by line, and is rotated by rename once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark_verify.demo.recorded_log import RecordedLog
from hourmark_verify.judge.expectations import Written

_WRITE_BYTES: Final = 1 << 18  # lines that are due together are written together, up to this


class Due(NamedTuple):
    """A log line and the time at which it must be written.

    Attributes:
        moment: due time as a fraction (0 to 1) of the time span.
        render: function that returns the line, without line feed, for a time in Unix milliseconds.
        broken: whether the line must become a dead letter.
    """

    moment: float
    render: Callable[[int], bytes]
    broken: bool = False


class LiveLog:
    """Writes lines when they are due; rotates `path` to `path.1` in the middle of the span.

    `records` says what was handed to the files, and never what is read from them.
    """

    def __init__(
        self, path: Path, event_type: str | None, lines: Iterator[Due], clock: Clock
    ) -> None:
        self.path = path
        self.event_type = event_type
        self.written = 0
        self.minutes: set[int] = set()  # Unix minutes in which lines were written
        self._lines = lines
        self._next = next(lines, None)
        self._clock = clock
        self._log = RecordedLog(path)

    @property
    def records(self) -> list[Written]:
        """Records of the rotated file, if any, and of the current file."""
        return self._log.records

    @property
    def done(self) -> bool:
        """Whether all lines have been written."""
        return self._next is None

    def write_due(self, moment: float) -> None:
        """Write all lines that are due, and rotate the file at the middle of the time span.

        Args:
            moment: elapsed fraction of the time span.
        """
        pending, broken = bytearray(), list[int]()
        while self._next is not None and self._next.moment <= moment:
            if not self._log.rotated and self._next.moment >= 0.5:
                self._flush(pending, broken)
                self._log.rotate()
            now_ms = self._clock.now_ms()
            if self._next.broken:
                broken.append(len(pending))
            pending += self._next.render(now_ms) + b"\n"
            self.written += 1
            self.minutes.add(now_ms // 60_000)
            self._next = next(self._lines, None)
            if len(pending) >= _WRITE_BYTES:
                self._flush(pending, broken)
        self._flush(pending, broken)

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def _flush(self, pending: bytearray, broken: list[int]) -> None:
        self._log.append(pending, broken)
        pending.clear()
        broken.clear()
