"""Times by a word instead of a format: rfc3339, and Unix time in seconds or finer.

Finer digits than milliseconds are cut off.

`unix` takes a decimal fraction; the others are whole numbers. All have their zone, so nothing is
taken from the range.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from hourmark.rules.line_rule import LineRule
from hourmark_delivery_service.parsing.times.formats import TimeContext, TimeFormat
from hourmark_delivery_service.parsing.times.timestamps import rfc3339_us

_UNIX: Final = re.compile(rb"(-?)(\d{1,20})(?:\.(\d{1,30}))?")
_PER_MS: Final = {"unix-ms": 1, "unix-us": 1000, "unix-ns": 1_000_000}


class TimeReader(Protocol):
    """Reads the text of a time."""

    def read_ms(self, text: bytes, context: TimeContext) -> int | None:
        """Unix milliseconds, rounded down, or None if it has not this form."""
        ...


class Rfc3339Reader:
    """A date, a time and an offset."""

    # nothing is left out
    def read_ms(self, text: bytes, context: TimeContext) -> int | None:  # noqa: ARG002
        """As `TimeReader` has it."""
        micros = rfc3339_us(text)
        return None if micros is None else micros // 1000


class UnixTimeReader:
    """A number since 1970."""

    def __init__(self, word: str) -> None:
        self._word = word

    # nothing is left out
    def read_ms(self, text: bytes, context: TimeContext) -> int | None:  # noqa: ARG002
        """As `TimeReader` has it."""
        match = _UNIX.fullmatch(text)
        if match is None or (match[3] and self._word != "unix"):
            return None
        if self._word != "unix":
            return int(match[1] + match[2]) // _PER_MS[self._word]
        fraction = match[3] or b""
        ms = int(match[2]) * 1000 + int(fraction[:3].ljust(3, b"0"))
        return -ms - bool(fraction[3:].strip(b"0")) if match[1] else ms


def time_reader_for(rule: LineRule) -> TimeReader | None:
    """The reader of a type's times, or None where its messages hold none.

    ValueError names a directive that is none.
    """
    if rule.time_field is None:
        return None if rule.time_format is None else TimeFormat(rule.time_format)
    word = rule.time_format or "rfc3339"
    if word == "rfc3339":
        return Rfc3339Reader()
    return UnixTimeReader(word) if word == "unix" or word in _PER_MS else TimeFormat(word)
