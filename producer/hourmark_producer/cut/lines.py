"""Where a file is cut into ranges. Pure: it sees bytes through `read` and keeps nothing.

What holds for the ranges of one generation of a file, taken in order:

- together they are the file's bytes, without gap or overlap, up to the last LF or the last full
  chunk;
- a range of lines ends with LF, and has at most `range_bytes` unless it is one longer line;
- a line over `line_bytes_max` (without its LF) goes in pieces of at most that, the last of which
  ends with its LF;
- an unterminated last line is never sent, unless it is already over the limit: then a full piece of
  it is.

So memory is bounded by `line_bytes_max`, whatever is in the file. Nothing is done per line.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

from hourmark.records.ranges import Part

_LF = b"\n"
_TAIL_BYTES = 4096  # looked at first: most lines are shorter


class Read(Protocol):
    """Bytes of the file from the current position on."""

    def __call__(self, skip: int, count: int) -> bytes:
        """`count` bytes after skipping `skip`; fewer only where the file ends."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes. A range never holds more than one line's limit, so that no line in it can be
    over that.
    """

    range_bytes: int
    line_bytes_max: int

    def __post_init__(self) -> None:
        if not 0 < self.range_bytes <= self.line_bytes_max:
            raise ValueError(
                f"range_bytes must be from 1 to line_bytes_max ({self.line_bytes_max}), "
                f"not {self.range_bytes}"
            )


class Whole(Protocol):
    """The same from the current position on, into memory that is used again: what comes back holds
    until the next call.
    """

    def __call__(self, count: int) -> memoryview:
        """As `Read`."""
        ...


class Cut(NamedTuple):
    """The next bytes to ship. `part` CHUNK means: what follows is still the same line."""

    body: bytes | memoryview
    part: Part


class Pending(NamedTuple):
    """Nothing to ship yet: the next `searched` bytes are all there is, and hold no line end."""

    searched: int


def cut(
    read: Read, limits: Limits, *, in_line: bool, searched: int = 0, whole: Whole | None = None
) -> Cut | Pending:
    """The next cut.

    `in_line`: the last one was a CHUNK. `searched`: so many bytes are known to hold no LF.

    `whole`: it may be read as if it were in memory; else from the front, as what is packed.
    """
    if searched and (pending := _still_pending(read, limits, searched)):
        return pending
    if in_line:
        return _one_line(read, limits, limits.line_bytes_max, Part.LAST_CHUNK)
    if whole is not None and (body := _full(read, whole, limits.range_bytes)):
        return Cut(body, Part.LINES)
    window = read(0, limits.range_bytes)
    last = window.rfind(_LF)
    if last >= 0:
        return Cut(window[: last + 1], Part.LINES)
    if len(window) < limits.range_bytes:
        return Pending(len(window))
    return _one_line(read, limits, limits.line_bytes_max + 1, Part.LINES)


def _full(read: Read, whole: Whole, size: int) -> memoryview | None:
    """As many lines as there is room for, read once and as they are: cutting a range off what was
    read would copy it.
    """
    skipped = max(0, size - _TAIL_BYTES)
    tail = read(skipped, size - skipped)
    last = tail.rfind(_LF)
    if last < 0 or skipped + len(tail) < size:
        return None
    body = whole(skipped + last + 1)
    return (
        body if len(body) == skipped + last + 1 and body[-1:] == _LF else None
    )  # unless it was truncated meanwhile


def _still_pending(read: Read, limits: Limits, searched: int) -> Pending | None:
    """A slowly growing line is not read from its start each time."""
    fresh = read(searched, max(0, limits.line_bytes_max - searched))
    seen = searched + len(fresh)
    return Pending(seen) if _LF not in fresh and seen < limits.line_bytes_max else None


def _one_line(read: Read, limits: Limits, size_max: int, ends: Part) -> Cut | Pending:
    """A line, or the rest of one: with its LF at most `size_max` bytes, or else a piece of it."""
    window = read(0, size_max)
    first = window.find(_LF)
    if first >= 0:
        return Cut(window[: first + 1], ends)
    if len(window) == size_max:
        return Cut(window[: limits.line_bytes_max], Part.CHUNK)
    return Pending(len(window))
