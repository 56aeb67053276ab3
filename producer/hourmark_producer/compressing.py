"""Few ranges are in memory as lines: each takes its size twice there, and two cores do not compress more at a time.

So what a tailer takes does not depend on how many files have a backlog, nor on how many ranges are on their way, compressed.
The memory that lines are read into is used again: to be given fresh pages for each range takes longer than reading it.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import zstandard

AT_ONCE: Final = 2
ZSTD_LEVEL: Final = 1  # several times faster than the default, and logs shrink almost as far
_PATIENCE_S: Final = 1.0  # a file that cannot be read to its end, of a server that hangs, stops no others


class Press(NamedTuple):
    """What one range is read into, and compressed by."""

    compressor: zstandard.ZstdCompressor
    room: memoryview


class Presses:
    """Safe to use from several threads."""

    def __init__(self, room_bytes: int, count: int = AT_ONCE, patience_s: float = _PATIENCE_S) -> None:
        """`room_bytes`: of the largest range that is no longer line."""
        self._room_bytes = room_bytes
        self._patience_s = patience_s
        self._idle: queue.LifoQueue[Press] = queue.LifoQueue(count)
        for _ in range(count):
            self._idle.put(self._new())

    @contextmanager
    def one(self) -> Iterator[Press]:
        """One to compress what is read meanwhile; wait for it, but not for ever."""
        try:
            taken = self._idle.get(timeout=self._patience_s)
        except queue.Empty:
            taken = self._new()  # in place of one that hangs: not each that follows is to wait for that
        try:
            yield taken
        finally:
            with contextlib.suppress(queue.Full):  # of one that hung no longer
                self._idle.put_nowait(taken)

    def _new(self) -> Press:
        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
        return Press(compressor, memoryview(bytearray(self._room_bytes)))
