"""Records of more than one line: where they begin, by a look at each line alone."""

from __future__ import annotations

import re
from collections.abc import Iterator


class Begins:
    """A predicate that decides whether a line starts a multi-line record."""

    def __init__(self, record_start: str, flushed: list[int]) -> None:
        self._pattern = re.compile(record_start.encode())
        self._flushed = frozenset(flushed)

    def __call__(self, start: int, line: bytes) -> bool:
        """Return whether the line starts a record.

        Args:
            start: byte offset of the line in its file.
            line: content of the line; a trailing line feed is ignored.
        """
        return start in self._flushed or self._pattern.search(line.removesuffix(b"\n")) is not None


def pieces(start: int, size: int, size_max: int) -> Iterator[tuple[int, bool]]:
    """Yield the start offset of each piece of a record and whether the piece is the last.

    Args:
        start: byte offset of the record in its file.
        size: size of the record in bytes, including its last line feed.
        size_max: maximum size of a piece in bytes, excluding the line feed.

    Yields:
        (offset, is_last); a record that fits within the limit yields exactly one pair.
    """
    if size <= size_max + 1:
        yield start, True
        return
    for at in range(start, start + size, size_max):
        yield at, at + size_max >= start + size
