"""A packed file, as a trace sees it: where a line begins in its plain content, and which followed file it was packed from.

Names say nothing of that: a file that is known is told by the bytes before its position. As a rule it is not known any more, as
what was read to its end and is gone is let go.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.errors import UsageError
from hourmark_producer.compressed import CutOff, Damaged, Plain
from hourmark_producer.discovery import PACKED
from hourmark_producer.line_begin import begin_of_line
from hourmark_producer.peek import KnownFile
from hourmark_producer.truncation import ANCHOR_BYTES, are_alike

_BLOCK_BYTES: Final = 1 << 16


class Unpacked(NamedTuple):
    """`begin`: of the line, in plain content of `size` bytes; None: there is no such line. `file`: the one it holds."""

    begin: int | None
    size: int
    file: KnownFile | None


def is_packed(path: Path) -> bool:
    """Whether its name says so."""
    return path.name.endswith(PACKED)


def unpacked(path: Path, files: Sequence[KnownFile], line: int | None, offset: int | None) -> Unpacked:
    """Reads it once, to its end. UsageError where that cannot be; OSError."""
    try:
        watched = _Watched(Plain(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path.name), files)
        try:
            begin = offset if offset is not None else begin_of_line(watched, line or 1)
            while watched.read(_BLOCK_BYTES):
                pass
        finally:
            watched.close()
    except (CutOff, Damaged) as error:
        raise UsageError(f"{path} cannot be unpacked: {error}; while it is being written, ask again later") from error
    return Unpacked(begin, watched.size, watched.held[0] if len(watched.held) == 1 else None)


class _Watched:
    """Plain content, and which files' bytes before their positions stand there where they stood."""

    def __init__(self, plain: Plain, files: Sequence[KnownFile]) -> None:
        self._plain, self._tail = plain, b""
        self._files = [f for f in files if len(f.anchor) == ANCHOR_BYTES and not are_alike(b"", f.anchor)]
        self.size, self.held = 0, list[KnownFile]()

    def read(self, count: int) -> bytes:
        """The next bytes; none at the end."""
        block = self._plain.read(count)
        window, start, end = self._tail + block, self.size - len(self._tail), self.size + len(block)
        for file in self._files:
            if self.size < file.offset <= end and window[: file.offset - start].endswith(file.anchor):
                self.held.append(file)
        self.size, self._tail = end, window[-ANCHOR_BYTES:]
        return block

    def close(self) -> None:
        """Let go of the packed file."""
        self._plain.close()
