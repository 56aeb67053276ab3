"""Cuts a file of lines into ranges. Pure: bytes are read through a callable, and no state is kept.

Guarantees for the ranges of one generation of a file, in order:

- Together they are the file's bytes without gap or overlap, up to the last LF or the last full
  chunk.
- A range of lines ends with LF, and has at most `range_bytes` unless it is a single longer line.
- A line over `line_bytes_max` (without its LF) is sent in chunks of at most that size, the last of
  which ends with its LF.
- An unterminated last line is not sent, unless it is already over the limit: then a full chunk of
  it is sent.

Memory is bounded by `line_bytes_max`, whatever the file contains. There is no work per line.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

from hourmark.records.ranges import Part

_LF = b"\n"
_TAIL_BYTES = 4096  # searched first, as most lines are shorter


class ReadBytes(Protocol):
    """A function that reads bytes of a file at an offset relative to the current position."""

    def __call__(self, skip: int, count: int) -> bytes:
        """Return bytes that begin a given number of bytes after the current position.

        The position does not change.

        Args:
            skip: Number of bytes between the position and the first byte to return.
            count: Number of bytes to return.

        Returns:
            The bytes. Fewer than `count` are returned only at the end of the file.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class RangeLimits:
    """Size limits of ranges and lines, in bytes.

    Attributes:
        range_bytes: Maximum size of a range that contains several lines.
        line_bytes_max: Maximum size of a line without its LF. A longer line is sent in chunks.

    Raises:
        ValueError: `range_bytes` is not between 1 and `line_bytes_max`.
    """

    range_bytes: int
    line_bytes_max: int

    def __post_init__(self) -> None:
        if not 0 < self.range_bytes <= self.line_bytes_max:
            raise ValueError(
                f"range_bytes must be from 1 to line_bytes_max ({self.line_bytes_max}), "
                f"not {self.range_bytes}"
            )


class ReadIntoBuffer(Protocol):
    """A function that reads bytes at the current position into a reused buffer, without a copy."""

    def __call__(self, count: int) -> memoryview:
        """Return up to `count` bytes at the current position, as a view of the buffer.

        The position does not change. The view is valid until the next call, which overwrites the
        buffer.

        Args:
            count: Number of bytes to return.

        Returns:
            The bytes. Fewer than `count` are returned only at the end of the file.
        """
        ...


class RangeCut(NamedTuple):
    """The bytes of the next range to send, which usually end at a line or record end.

    Attributes:
        body: The bytes.
        part: Whether `body` contains complete lines or a chunk of a line that exceeds the size
            limit. After `Part.CHUNK`, the next range continues the same line.
        ends_file: Whether the last line has no LF and is sent as it is because the file ends there.
    """

    body: bytes | memoryview
    part: Part
    ends_file: bool = False


class NoCompleteLine(NamedTuple):
    """The result of cutting a range if the file does not contain a complete line yet.

    Attributes:
        searched: Number of bytes after the position that contain no line end. Pass it to the next
            call, which then does not search these bytes again.
    """

    searched: int


def cut_lines(
    read: ReadBytes,
    limits: RangeLimits,
    *,
    in_line: bool,
    searched: int = 0,
    read_buffered: ReadIntoBuffer | None = None,
) -> RangeCut | NoCompleteLine:
    """Cut the next range of complete lines from a file at its current position.

    A line that exceeds `limits.line_bytes_max` is split into chunks.

    Args:
        read: Function that reads bytes relative to the current position.
        limits: Size limits of ranges and lines.
        in_line: Whether the previous range was a chunk, so that the position is within a line.
        searched: Number of bytes after the position that are known to contain no LF.
        read_buffered: Function that reads into a reused buffer, which avoids a copy. None if the
            content can only be read forward, as in a compressed file.

    Returns:
        The range, or `NoCompleteLine` if the file does not contain a complete line yet.
    """
    if searched and (pending := _find_pending_line(read, limits, searched)):
        return pending
    if in_line:
        return _cut_long_line(read, limits, limits.line_bytes_max, Part.LAST_CHUNK)
    if read_buffered is not None and (
        body := _cut_whole_lines(read, read_buffered, limits.range_bytes)
    ):
        return RangeCut(body, Part.LINES)
    window = read(0, limits.range_bytes)
    last = window.rfind(_LF)
    if last >= 0:
        return RangeCut(window[: last + 1], Part.LINES)
    if len(window) < limits.range_bytes:
        return NoCompleteLine(len(window))
    return _cut_long_line(read, limits, limits.line_bytes_max + 1, Part.LINES)


def _cut_whole_lines(
    read: ReadBytes, read_buffered: ReadIntoBuffer, size: int
) -> memoryview | None:
    # None if fewer than `size` bytes are available, or if no line ends in the last 4 KiB of them
    skipped = max(0, size - _TAIL_BYTES)
    tail = read(skipped, size - skipped)
    last = tail.rfind(_LF)
    if last < 0 or skipped + len(tail) < size:
        return None
    body = read_buffered(skipped + last + 1)
    return (
        body if len(body) == skipped + last + 1 and body[-1:] == _LF else None
    )  # unless it was truncated meanwhile


def _find_pending_line(
    read: ReadBytes, limits: RangeLimits, searched: int
) -> NoCompleteLine | None:
    # None if the line is complete or too long, so that a range can be cut
    fresh = read(searched, max(0, limits.line_bytes_max - searched))
    seen = searched + len(fresh)
    return NoCompleteLine(seen) if _LF not in fresh and seen < limits.line_bytes_max else None


def _cut_long_line(
    read: ReadBytes, limits: RangeLimits, size_max: int, ends: Part
) -> RangeCut | NoCompleteLine:
    # `ends` is the part to report if the line ends within `size_max` bytes
    window = read(0, size_max)
    first = window.find(_LF)
    if first >= 0:
        return RangeCut(window[: first + 1], ends)
    if len(window) == size_max:
        return RangeCut(window[: limits.line_bytes_max], Part.CHUNK)
    return NoCompleteLine(len(window))
