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
    """Interface of timestamp parsers for one format.

    Examples of formats are RFC 3339, Unix time and `strptime` formats.
    """

    def read_ms(self, text: bytes, context: TimeContext) -> int | None:
        """Parse a timestamp.

        Args:
            text: The timestamp, without surrounding text.
            context: Context that completes a timestamp without a year, date or time zone.

        Returns:
            Unix milliseconds, rounded down. None if the text is not a valid timestamp in this
            format.
        """
        ...


class Rfc3339Reader:
    """A parser for RFC 3339 timestamps, such as `2026-11-28T10:00:00.5Z`.

    Timestamps in this format are complete, so the parser needs no additional context.
    """

    # nothing is left out
    def read_ms(self, text: bytes, context: TimeContext) -> int | None:  # noqa: ARG002
        """Parse an RFC 3339 timestamp.

        Args:
            text: Timestamp with a time zone offset or `Z`.
            context: Not used.

        Returns:
            Unix milliseconds, rounded down. None if the text is not a valid timestamp.
        """
        micros = rfc3339_us(text)
        return None if micros is None else micros // 1000


class UnixTimeReader:
    """A parser for Unix times in seconds, milliseconds, microseconds or nanoseconds.

    Args:
        word: Name of the format: `unix` (seconds, with an optional decimal fraction), `unix-ms`,
            `unix-us` or `unix-ns`.
    """

    def __init__(self, word: str) -> None:
        self._word = word

    # nothing is left out
    def read_ms(self, text: bytes, context: TimeContext) -> int | None:  # noqa: ARG002
        """Parse a Unix time.

        Args:
            text: Decimal number, which may be negative.
            context: Not used.

        Returns:
            Unix milliseconds, rounded down. None if the text is not a valid number, or has a
            fraction and the unit is not seconds.
        """
        match = _UNIX.fullmatch(text)
        if match is None or (match[3] and self._word != "unix"):
            return None
        if self._word != "unix":
            return int(match[1] + match[2]) // _PER_MS[self._word]
        fraction = match[3] or b""
        ms = int(match[2]) * 1000 + int(fraction[:3].ljust(3, b"0"))
        return -ms - bool(fraction[3:].strip(b"0")) if match[1] else ms


def time_reader_for(rule: LineRule) -> TimeReader | None:
    """Return the parser for the timestamps in lines of an event type.

    Args:
        rule: Parsing rule of the type, with the position and the format of the timestamp.

    Returns:
        The parser, or None if the messages of the type contain no time.

    Raises:
        ValueError: If the declared time format has an unsupported directive.
    """
    if rule.time_field is None:
        return None if rule.time_format is None else TimeFormat(rule.time_format)
    word = rule.time_format or "rfc3339"
    if word == "rfc3339":
        return Rfc3339Reader()
    return UnixTimeReader(word) if word == "unix" or word in _PER_MS else TimeFormat(word)
