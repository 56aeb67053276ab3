"""Records of more than one line: where they begin, by a look at each line alone."""

from __future__ import annotations

import re
from collections.abc import Iterator


class Begins:
    """Whether a line begins a record."""

    def __init__(self, record_start: str, flushed: list[int]) -> None:
        self._pattern = re.compile(record_start.encode())
        self._flushed = frozenset(flushed)

    def __call__(self, start: int, line: bytes) -> bool:
        """`line`: with its LF."""
        return start in self._flushed or self._pattern.search(line.removesuffix(b"\n")) is not None


def pieces(start: int, size: int, size_max: int) -> Iterator[tuple[int, bool]]:
    """Where a record of this size, its last LF included, was sent from: at once, or in pieces; and
    whether that ends it.
    """
    if size <= size_max + 1:
        yield start, True
        return
    for at in range(start, start + size, size_max):
        yield at, at + size_max >= start + size
