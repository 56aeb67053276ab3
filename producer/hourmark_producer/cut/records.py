"""Where files are cut whose records are more than one line, and files of container logs.

Where a file is cut whose records are more than one line. Pure, as `cutting` is, and with the same
limits.

A record is a line that begins one, and the lines after it that do not; so it is known to be whole
only by the next. What holds beside what `cutting` says, for the ranges of one generation in order:

- a range ends where a record does, or after a flush: then its last record is as far as it was
  written by then;
- so a range begins with a record, whatever its first line looks like, and the range alone tells
  where the others begin;
- a record over `line_bytes_max` (without its last LF) goes in pieces, the last of which ends where
  it does;
- the search goes backwards from a range's end: nothing is done for most lines.

Memory is bounded by two of `line_bytes_max`: a record, and the line after it.

Where a container log is cut. Pure, as `cutting` is, and with the same limits.

Beside what `cutting` says: nothing is cut between a partial line and its end, of either stream.
Where something is partial for more than `line_bytes_max`, what there is goes in pieces of whole
lines, up to the next full line; and what is partial when the file has long not grown is sent as far
as it goes: the runtime may have gone on in the next file. What comes after it is a record of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hourmark.records.cri import first_clean_end, first_full_end, last_clean_end
from hourmark.records.ranges import Part
from hourmark_producer.cut.lines import Cut, Limits, Pending, Read

_LF: Final = b"\n"
_BLOCK_BYTES: Final = 4096  # searched first, from the end; then twice as much, and so on

Starts = Callable[
    [bytes, int, int], Iterator[int]
]  # where records begin among these lines, see `hourmark.records.record_start`


def cut_records(
    read: Read, limits: Limits, starts: Starts, *, in_record: bool, flush: bool
) -> Cut | Pending:
    """The next cut.

    `in_record`: the last one was a CHUNK. `flush`: what is there has long been all.
    """
    if in_record:
        return _one_record(
            read, limits, starts, limits.line_bytes_max, Part.LAST_CHUNK, flush=flush
        )
    window = read(0, limits.range_bytes)
    if end := _last_start(window, starts):
        return Cut(window[:end], Part.LINES)
    if len(window) < limits.range_bytes:
        return _unended_record(window, Part.LINES, flush=flush)
    return _one_record(read, limits, starts, limits.line_bytes_max + 1, Part.LINES, flush=flush)


def _last_start(window: bytes, starts: Starts) -> int:
    """Where the last record begins that is not the first; 0 if none does."""
    first, stop, size = window.find(_LF) + 1, window.rfind(_LF) + 1, _BLOCK_BYTES
    while first < stop:
        at = max(first, window.rfind(_LF, 0, max(0, stop - size)) + 1)
        if found := [*starts(window, at, stop)]:
            return found[-1]
        stop, size = at, 2 * size
    return 0


def _unended_record(window: bytes, ends: Part, *, flush: bool) -> Cut | Pending:
    """All there is, and no record begins in it."""
    whole = window.rfind(_LF) + 1
    if flush and whole:
        return Cut(window[:whole], ends)
    return Pending(0 if whole else len(window))  # whole lines that wait are work to be done


def _one_record(
    read: Read, limits: Limits, starts: Starts, size_max: int, ends: Part, *, flush: bool
) -> Cut | Pending:
    """A record, or the rest of one: with its last LF at most `size_max` bytes, or else a piece of
    it.
    """
    window = read(0, size_max)
    first, whole = window.find(_LF) + 1, window.rfind(_LF) + 1
    if first and (end := next(starts(window, first, whole), 0)):
        return Cut(window[:end], ends)
    full = len(window) == size_max
    next_begins = _begins(read, limits, starts, whole) if first else False
    if next_begins:
        return Cut(window[:whole], ends)
    if full and next_begins is not None:
        return Cut(window[: limits.line_bytes_max], Part.CHUNK)
    return _unended_record(window, ends, flush=flush)


def _begins(read: Read, limits: Limits, starts: Starts, at: int) -> bool | None:
    """Whether the line there begins a record; of an over-long line its first piece tells.

    None: it is not all there yet.
    """
    window = read(0, at + limits.line_bytes_max + 1)[at:]  # never ahead of what may be read again
    end = window.find(_LF) + 1
    if not end and len(window) <= limits.line_bytes_max:
        return None
    return next(starts(window, 0, end or limits.line_bytes_max), None) is not None


def cut_cri(
    read: Read, limits: Limits, *, in_piece: bool, at_line: bool, flush: bool
) -> Cut | Pending:
    """The next cut.

    `in_piece`: the last one was a CHUNK, `at_line`: which ended with a line. `flush`: as of
    `record_cutting`.
    """
    if in_piece:
        return _rest(read, limits, at_line=at_line, flush=flush)
    window = _lines(read(0, limits.range_bytes))
    if end := last_clean_end(window):
        return Cut(window[:end], Part.LINES)
    everything = read(0, limits.line_bytes_max + 1)
    window = _lines(everything)
    if window and (end := first_clean_end(window)):
        return Cut(window[:end], Part.LINES)
    return _unended_cri_line(everything, limits, Part.LINES, flush=flush)


def _rest(read: Read, limits: Limits, *, at_line: bool, flush: bool) -> Cut | Pending:
    """What follows a piece, up to the end of what it is of, as far as can be told."""
    everything = read(0, limits.line_bytes_max)
    window = _lines(everything)
    if window and (end := first_full_end(window) if at_line else window.find(_LF) + 1):
        return Cut(window[:end], Part.LAST_CHUNK)
    return _unended_cri_line(everything, limits, Part.LAST_CHUNK, flush=flush)


def _unended_cri_line(
    everything: bytes, limits: Limits, ends: Part, *, flush: bool
) -> Cut | Pending:
    whole = _lines(everything[: limits.line_bytes_max])
    if len(everything) >= limits.line_bytes_max + (ends is Part.LINES):
        return Cut(whole or everything[: limits.line_bytes_max], Part.CHUNK)
    if flush and whole:
        return Cut(whole, ends)
    return Pending(0 if whole else len(everything))


def _lines(window: bytes) -> bytes:
    return window[: window.rfind(_LF) + 1]
