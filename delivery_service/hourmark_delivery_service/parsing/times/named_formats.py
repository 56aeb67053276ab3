"""Time formats that are declared by name: `rfc3339`, and Unix time in seconds or smaller units.

`unix` accepts a decimal fraction; `unix-ms`, `unix-us` and `unix-ns` are integers. Digits below a
millisecond are truncated. All have an implicit or explicit zone, so nothing is taken from the
range.
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
    """A parser for the text of a time."""

    def read_ms(self, text: bytes, context: TimeContext) -> int | None:
        """Parse a time.

        Args:
            text: Text of the time.
            context: Supplies the parts that the text omits.

        Returns:
            Unix milliseconds, rounded down, or None if the text is not a valid time in this format.
        """
        ...


class Rfc3339Reader:
    """A time parser for RFC 3339 timestamps."""

    # nothing is left out
    def read_ms(self, text: bytes, context: TimeContext) -> int | None:  # noqa: ARG002
        """Parse an RFC 3339 timestamp to Unix milliseconds, or return None if it is invalid."""
        micros = rfc3339_us(text)
        return None if micros is None else micros // 1000


class UnixTimeReader:
    """A time parser for Unix time in the unit that a named format declares.

    Args:
        word: One of `unix` (seconds, with an optional fraction), `unix-ms`, `unix-us` and
            `unix-ns`.
    """

    def __init__(self, word: str) -> None:
        self._word = word

    # nothing is left out
    def read_ms(self, text: bytes, context: TimeContext) -> int | None:  # noqa: ARG002
        """Parse a Unix time to Unix milliseconds, rounded down, or return None if it is invalid."""
        match = _UNIX.fullmatch(text)
        if match is None or (match[3] and self._word != "unix"):
            return None
        if self._word != "unix":
            return int(match[1] + match[2]) // _PER_MS[self._word]
        fraction = match[3] or b""
        ms = int(match[2]) * 1000 + int(fraction[:3].ljust(3, b"0"))
        return -ms - bool(fraction[3:].strip(b"0")) if match[1] else ms


def time_reader_for(rule: LineRule) -> TimeReader | None:
    """Return the time parser that a type declares, or None if its messages contain no time.

    Raises:
        ValueError: If the declared time format has an unsupported directive.
    """
    if rule.time_field is None:
        return None if rule.time_format is None else TimeFormat(rule.time_format)
    word = rule.time_format or "rfc3339"
    if word == "rfc3339":
        return Rfc3339Reader()
    return UnixTimeReader(word) if word == "unix" or word in _PER_MS else TimeFormat(word)
