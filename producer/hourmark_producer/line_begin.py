"""Where a line begins: by counting."""

from __future__ import annotations

from typing import Final, Protocol

_BLOCK_BYTES: Final = 1 << 20


class _Content(Protocol):
    def read(self, size: int, /) -> bytes: ...


def begin_of_line(content: _Content, line: int) -> int | None:
    """The offset where `line` (from 1) begins; None where the file has no such line."""
    left, at = line - 1, 0
    while block := content.read(_BLOCK_BYTES):
        count = block.count(b"\n")
        if left <= count:
            begin = 0
            for _ in range(left):
                begin = block.index(b"\n", begin) + 1
            return at + begin if begin < len(block) or content.read(1) else None
        left, at = left - count, at + len(block)
    return None
