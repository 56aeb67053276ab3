"""Where a container log is cut. Pure, as `cutting` is, and with the same limits.

Beside what `cutting` says: nothing is cut between a partial line and its end, of either stream. Where something is partial for
more than `line_bytes_max`, what there is goes in pieces of whole lines, up to the next full line; and what is partial when the
file has long not grown is sent as far as it goes: the runtime may have gone on in the next file. What comes after it is a record
of its own.
"""

from __future__ import annotations

from hourmark.cri import clean_end, first_clean_end, first_full_end
from hourmark.ranges import Part
from hourmark_producer.cutting import Cut, Limits, Pending, Read

_LF = b"\n"


def cut_cri(read: Read, limits: Limits, *, in_piece: bool, at_line: bool, flush: bool) -> Cut | Pending:
    """The next cut. `in_piece`: the last one was a CHUNK, `at_line`: which ended with a line. `flush`: as of `record_cutting`."""
    if in_piece:
        return _rest(read, limits, at_line=at_line, flush=flush)
    window = _lines(read(0, limits.range_bytes))
    if end := clean_end(window):
        return Cut(window[:end], Part.LINES)
    everything = read(0, limits.line_bytes_max + 1)
    window = _lines(everything)
    if window and (end := first_clean_end(window)):
        return Cut(window[:end], Part.LINES)
    return _unended(everything, limits, Part.LINES, flush=flush)


def _rest(read: Read, limits: Limits, *, at_line: bool, flush: bool) -> Cut | Pending:
    """What follows a piece, up to the end of what it is of, as far as can be told."""
    everything = read(0, limits.line_bytes_max)
    window = _lines(everything)
    if window and (end := first_full_end(window) if at_line else window.find(_LF) + 1):
        return Cut(window[:end], Part.LAST_CHUNK)
    return _unended(everything, limits, Part.LAST_CHUNK, flush=flush)


def _unended(everything: bytes, limits: Limits, ends: Part, *, flush: bool) -> Cut | Pending:
    whole = _lines(everything[: limits.line_bytes_max])
    if len(everything) >= limits.line_bytes_max + (ends is Part.LINES):
        return Cut(whole or everything[: limits.line_bytes_max], Part.CHUNK)
    if flush and whole:
        return Cut(whole, ends)
    return Pending(0 if whole else len(everything))


def _lines(window: bytes) -> bytes:
    return window[: window.rfind(_LF) + 1]
