"""Detection of the first lines of multi-line records by an RE2 pattern.

The File Tailer and the delivery service both use it. The pattern is searched for anywhere in a
line, without its line feed. `^` and `$` match the ends of the line, and nothing matches a line
feed, so each line is decided independently. The pattern is encoded as UTF-8 and matched byte by
byte (Latin-1), as patterns of event types are. Requires google-re2; only components with such
sources import this module.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Final

import re2

from hourmark.records.ranges import RECORD_START_BYTES_MAX

_MEMORY_MAX: Final = 1 << 20  # of a compiled pattern, because any client may send one
# instructions: the cost of each byte if RE2's fast path fails; the pattern of a date has 40
_PROGRAM_MAX: Final = 1000
STEP_BYTES: Final = (
    32 << 10
)  # searched between pauses, at most about 1 ms, so that the caller can do other work
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_NO_LINES: Final = re.compile(
    r"\(\?[a-zA-Z]*-[a-zA-Z]*m"
)  # (?-m): ^ would match only at the start of the text


class RecordStart:
    r"""A compiled pattern that detects the first lines of multi-line records.

    The constructor raises `ValueError` if the pattern is empty, too large, not valid RE2, or uses
    `\A`, `\z`, `\C` or `(?-m)`.

    Args:
        pattern: RE2 pattern. A line that contains a match begins a record.
    """

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
                r"record_start: each line is matched separately, so \A, \z, \C and (?-m) are "
                r"not supported; use ^ and $"
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
            raise ValueError(f"record_start: not a valid RE2 pattern: {reason}") from error
        if self._compiled.programsize > _PROGRAM_MAX:
            raise ValueError(
                "record_start: the pattern is too large; shorten it, for example to the "
                "beginning of a date alone"
            )

    def steps(self, body: bytes, at: int, end: int) -> Iterator[int | None]:
        """Yield the offset of each line that begins a record, with a pause after each block.

        Use this method instead of `starts` in code that must not block for long.

        Args:
            body: Lines with their line feeds.
            at: Start offset in `body`, at the beginning of a line.
            end: End offset in `body` (exclusive), at the beginning of a line or the end of `body`.

        Yields:
            Offsets in ascending order, and None after each block of about 32 KiB, so that the
            caller can do other work.
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
        """Yield the offset of each line in `body[at:end]` that begins a record.

        Args:
            body: Lines with their line feeds.
            at: Start offset in `body`, at the beginning of a line.
            end: End offset in `body` (exclusive), at the beginning of a line or the end of `body`.

        Yields:
            Offsets in `body`, in ascending order.
        """
        return (found for found in self.steps(body, at, end) if found is not None)


@functools.lru_cache(maxsize=64)
def compile_record_start(pattern: str) -> RecordStart:
    """Compile the pattern that detects the first lines of multi-line records.

    The 64 most recently used results are cached.

    Args:
        pattern: RE2 pattern that matches the first line of each record.

    Returns:
        The compiled pattern.

    Raises:
        ValueError: The pattern is invalid or not supported; see `RecordStart`.
    """
    return RecordStart(pattern)
