"""Where records begin that are more than one line: a pattern (RE2, so in linear time) that is found
in the first line of each.

Tailer and service split by this one reading. The pattern is looked for anywhere in a line, without
its LF; `^` and `$` are the line's ends, and nothing matches an LF, so no line depends on another.
It is read as patterns of types are: Latin-1, a byte a character, with its own characters beyond
ASCII as their UTF-8 bytes. Needs google-re2: imported where such sources are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Final

import re2

from hourmark.records.ranges import RECORD_START_BYTES_MAX

_MEMORY_MAX: Final = 1 << 20  # of a compiled pattern: it comes from whoever may send ranges
# instructions: where RE2's fast way fails, each byte costs as much; that of a date has forty
_PROGRAM_MAX: Final = 1000
STEP_BYTES: Final = (
    32 << 10
)  # searched in one go, about a millisecond at worst: who asks may do other work in between
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_NO_LINES: Final = re.compile(
    r"\(\?[a-zA-Z]*-[a-zA-Z]*m"
)  # (?-m): then ^ is the beginning of all text


class RecordStart:
    """One pattern. ValueError says why it is none."""

    def __init__(self, pattern: str) -> None:
        encoded = pattern.encode()
        if not 0 < len(encoded) <= RECORD_START_BYTES_MAX:
            raise ValueError(
                f"record_start must have 1 to {RECORD_START_BYTES_MAX} bytes, not {len(encoded)}"
            )
        if any(escape[1] in "AzC" for escape in _ESCAPE.finditer(pattern)) or _NO_LINES.search(
            pattern
        ):
            raise ValueError(
                r"record_start: a line is looked at alone, so \A, \z, \C and (?-m) mean "
                r"nothing; use ^ and $"
            )
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors, options.never_nl, options.never_capture = False, True, True
        options.max_mem = _MEMORY_MAX
        try:
            self._compiled = re2.compile(b"(?m)" + encoded, options)
        except re2.error as error:
            reason = (
                error.args[0].decode(errors="replace")
                if error.args and isinstance(error.args[0], bytes)
                else error
            )
            raise ValueError(f"record_start: RE2 does not accept it: {reason}") from error
        if self._compiled.programsize > _PROGRAM_MAX:
            raise ValueError(
                "record_start: the pattern is too large; let it tell less, such as the "
                "beginning of a date alone"
            )

    def steps(self, body: bytes, at: int, end: int) -> Iterator[int | None]:
        """Offsets of the lines of `body[at:end]` that begin a record, in order; None now and then:
        nothing was found for a while.

        Both are line starts, or `end` is where all bytes end.
        """
        while at < end:
            stop = (
                body.rfind(b"\n", at, min(at + STEP_BYTES, end)) + 1
                or body.find(b"\n", at, end) + 1
                or end
            )
            while (
                at < stop
                and (found := self._compiled.search(body, at, stop - (body[stop - 1] == 0x0A)))
                is not None
            ):
                line = body.rfind(b"\n", at, found.start()) + 1 or at
                yield line
                at = body.find(b"\n", found.start(), stop) + 1 or stop
            at = stop
            yield None

    def starts(self, body: bytes, at: int, end: int) -> Iterator[int]:
        """The same without pauses."""
        return (found for found in self.steps(body, at, end) if found is not None)


@functools.lru_cache(maxsize=64)
def compile_record_start(pattern: str) -> RecordStart:
    """The same, compiled once. ValueError."""
    return RecordStart(pattern)
