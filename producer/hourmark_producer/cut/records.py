"""Cuts files whose records span several lines, and container logs. Pure, like `lines`.

The size limits are those of `lines`.

A record is a line that begins one and the following lines that do not. It is known to be complete
only when the next record begins. In addition to the guarantees of `lines`, for the ranges of one
generation in order:

- A range ends where a record ends, or after a flush; then its last record is as far as it was
  written by then.
- A range therefore begins with a record, whatever its first line looks like, and the range alone
  determines where the others begin.
- A record over `line_bytes_max` (without its last LF) is sent in chunks, the last of which ends
  where the record does.
- The search goes backwards from the end of a range, so most lines are not examined.

Memory is bounded by twice `line_bytes_max`: a record and the line after it.

In a container log (CRI format), no cut is made between a partial line and its end, of either
stream. If lines are partial for more than `line_bytes_max`, they are sent in chunks of whole lines
up to the next full line. If the file has not grown for long, partial lines are sent as they are,
because the runtime may have continued in the next file; what follows is a new record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hourmark.records.cri import first_clean_end, first_full_end, last_clean_end
from hourmark.records.ranges import Part
from hourmark_producer.cut.lines import NoCompleteLine, RangeCut, RangeLimits, ReadBytes

_LF: Final = b"\n"
_BLOCK_BYTES: Final = 4096  # searched first, from the end; then twice as much, and so on

FindRecordStarts = Callable[
    [bytes, int, int], Iterator[int]
]  # where records begin among these lines, see `hourmark.records.record_start`


def cut_records(
    read: ReadBytes,
    limits: RangeLimits,
    find_starts: FindRecordStarts,
    *,
    in_record: bool,
    flush: bool,
) -> RangeCut | NoCompleteLine:
    """Cut the next range from a file whose records span several lines, such as stack traces.

    A record ends where the next one begins. A record that exceeds `limits.line_bytes_max` is split
    into chunks.

    Args:
        read: Function that reads bytes relative to the current position.
        limits: Size limits of ranges and records.
        find_starts: Function that takes bytes, and the start and end of the part to search. Yields
            the offsets at which records begin.
        in_record: Whether the previous range was a chunk, so that the position is within a record.
        flush: Whether to send the last record even if the next record has not begun. Set it if the
            file has not grown for some time.

    Returns:
        The range, or `NoCompleteLine` if no record is known to be complete.
    """
    if in_record:
        return _cut_single_record(
            read, limits, find_starts, limits.line_bytes_max, Part.LAST_CHUNK, flush=flush
        )
    window = read(0, limits.range_bytes)
    if end := _find_last_start(window, find_starts):
        return RangeCut(window[:end], Part.LINES)
    if len(window) < limits.range_bytes:
        return _cut_unfinished_record(window, Part.LINES, flush=flush)
    return _cut_single_record(
        read, limits, find_starts, limits.line_bytes_max + 1, Part.LINES, flush=flush
    )


def _find_last_start(window: bytes, find_starts: FindRecordStarts) -> int:
    # 0 if the window contains only one record
    first, stop, size = window.find(_LF) + 1, window.rfind(_LF) + 1, _BLOCK_BYTES
    while first < stop:
        at = max(first, window.rfind(_LF, 0, max(0, stop - size)) + 1)
        if found := [*find_starts(window, at, stop)]:
            return found[-1]
        stop, size = at, 2 * size
    return 0


def _cut_unfinished_record(window: bytes, ends: Part, *, flush: bool) -> RangeCut | NoCompleteLine:
    whole = window.rfind(_LF) + 1
    if flush and whole:
        return RangeCut(window[:whole], ends)
    return NoCompleteLine(0 if whole else len(window))  # whole lines that wait are work to be done


def _cut_single_record(
    read: ReadBytes,
    limits: RangeLimits,
    find_starts: FindRecordStarts,
    size_max: int,
    ends: Part,
    *,
    flush: bool,
) -> RangeCut | NoCompleteLine:
    # `ends` is the part to report if the record ends within `size_max` bytes
    window = read(0, size_max)
    first, whole = window.find(_LF) + 1, window.rfind(_LF) + 1
    if first and (end := next(find_starts(window, first, whole), 0)):
        return RangeCut(window[:end], ends)
    full = len(window) == size_max
    next_begins = _is_record_start(read, limits, find_starts, whole) if first else False
    if next_begins:
        return RangeCut(window[:whole], ends)
    if full and next_begins is not None:
        return RangeCut(window[: limits.line_bytes_max], Part.CHUNK)
    return _cut_unfinished_record(window, ends, flush=flush)


def _is_record_start(
    read: ReadBytes, limits: RangeLimits, find_starts: FindRecordStarts, at: int
) -> bool | None:
    # None if the line is incomplete and not yet over the size limit
    window = read(0, at + limits.line_bytes_max + 1)[at:]  # never ahead of what may be read again
    end = window.find(_LF) + 1
    if not end and len(window) <= limits.line_bytes_max:
        return None
    return next(find_starts(window, 0, end or limits.line_bytes_max), None) is not None


def cut_cri(
    read: ReadBytes, limits: RangeLimits, *, in_record: bool, after_line_end: bool, flush: bool
) -> RangeCut | NoCompleteLine:
    """Cut the next range from a Kubernetes container log in CRI format.

    CRI marks a line as partial if the next line continues it. A range ends after a line that is not
    partial, unless the record exceeds the size limit.

    Args:
        read: Function that reads bytes relative to the current position.
        limits: Size limits of ranges and records.
        in_record: Whether the previous range was a chunk of a record that exceeds the size limit.
        after_line_end: Whether that chunk ended with a line end.
        flush: Whether to send partial lines without their continuation. Set it if the file has not
            grown for some time.

    Returns:
        The range, or `NoCompleteLine` if no record is complete.
    """
    if in_record:
        return _rest(read, limits, after_line_end=after_line_end, flush=flush)
    window = _lines(read(0, limits.range_bytes))
    if end := last_clean_end(window):
        return RangeCut(window[:end], Part.LINES)
    everything = read(0, limits.line_bytes_max + 1)
    window = _lines(everything)
    if window and (end := first_clean_end(window)):
        return RangeCut(window[:end], Part.LINES)
    return _unended_cri_line(everything, limits, Part.LINES, flush=flush)


def _rest(
    read: ReadBytes, limits: RangeLimits, *, after_line_end: bool, flush: bool
) -> RangeCut | NoCompleteLine:
    everything = read(0, limits.line_bytes_max)
    window = _lines(everything)
    if window and (end := first_full_end(window) if after_line_end else window.find(_LF) + 1):
        return RangeCut(window[:end], Part.LAST_CHUNK)
    return _unended_cri_line(everything, limits, Part.LAST_CHUNK, flush=flush)


def _unended_cri_line(
    everything: bytes, limits: RangeLimits, ends: Part, *, flush: bool
) -> RangeCut | NoCompleteLine:
    whole = _lines(everything[: limits.line_bytes_max])
    if len(everything) >= limits.line_bytes_max + (ends is Part.LINES):
        return RangeCut(whole or everything[: limits.line_bytes_max], Part.CHUNK)
    if flush and whole:
        return RangeCut(whole, ends)
    return NoCompleteLine(0 if whole else len(everything))


def _lines(window: bytes) -> bytes:
    return window[: window.rfind(_LF) + 1]
