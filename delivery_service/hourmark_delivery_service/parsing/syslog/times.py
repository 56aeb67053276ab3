"""Times in syslog headers under parser version 3: located in a line first, and converted later.

`forms` lists the forms. A time zone is interpreted as the first of these that applies:

1. an offset, `Z`, or a name of UTC
2. an abbreviation that the range's time zone uses at that time
3. an abbreviation of RFC 5322 (section 4.3) or of a European, Japanese or Australian time zone that
   stands for only one offset
4. an unknown name: the time is then in the range's time zone
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hourmark_delivery_service.parsing.times.formats import TimeContext, TimeFormat
from hourmark_delivery_service.parsing.times.timestamps import fraction_us

_CLOCK: Final = rb"(\d{1,2}:\d\d:\d\d)(?:[.,:](\d{1,9})(?!\d))?"
_MONTH_FIRST: Final = re.compile(
    rb"(?:[A-Z][a-z]{2},? )?([A-Z][a-z]{2}) {1,2}(\d{1,2})(?: (\d{4}))? {1,2}" + _CLOCK
)
_YEAR_FIRST: Final = re.compile(rb"(\d{4}) ([A-Z][a-z]{2}) {1,2}(\d{1,2}) {1,2}" + _CLOCK)
_DAY_FIRST: Final = re.compile(rb"(\d{1,2})[ -]([A-Z][a-z]{2})[ -](\d{4}) " + _CLOCK)
_ISO: Final = re.compile(rb"(\d{4})-(\d\d)-(\d\d)([T ])" + _CLOCK)
_SLASHED: Final = re.compile(rb"(?:(\d\d)/(\d\d)/(\d{4})[: ]|(\d{4})/(\d\d)/(\d\d) )" + _CLOCK)
_ISO_LIKE: Final = re.compile(rb"\d{4}-\d\d-\d\dT[!-~]{5,32}+")
_YEAR: Final = re.compile(rb" (20\d\d|19\d\d)(?= |: )")
_OFFSET: Final = re.compile(rb" ?(Z|[+-]\d\d:\d\d|[+-]\d{4}|[+-]\d\d)(?=[ :]|\Z)")
_WORD: Final = re.compile(rb" ([A-Z]{2,5}(?:[+-]\d{1,2}(?::?\d\d)?)?)(?=[ :]|\Z)")
_OF_UTC: Final = frozenset((b"UTC", b"GMT", b"UCT", b"Z"))
_FROM_UTC: Final = re.compile(rb"(?:UTC|GMT|TZ)?([+-])(\d{1,2})(?::?(\d\d))?")
_OFFSETS: Final = {
    b"EST": b"-0500",
    b"EDT": b"-0400",
    b"CST": b"-0600",
    b"CDT": b"-0500",
    b"MST": b"-0700",
    b"MDT": b"-0600",
    b"PST": b"-0800",
    b"PDT": b"-0700",
    b"AKST": b"-0900",
    b"AKDT": b"-0800",
    b"HST": b"-1000",
    b"WET": b"+0000",
    b"WEST": b"+0100",
    b"CET": b"+0100",
    b"CEST": b"+0200",
    b"MET": b"+0100",
    b"MEST": b"+0200",
    b"EET": b"+0200",
    b"EEST": b"+0300",
    b"MSK": b"+0300",
    b"JST": b"+0900",
    b"KST": b"+0900",
    b"AEST": b"+1000",
    b"AEDT": b"+1100",
    b"NZST": b"+1200",
    b"NZDT": b"+1300",
}
_MONTHS: Final = (
    b"",
    b"Jan",
    b"Feb",
    b"Mar",
    b"Apr",
    b"May",
    b"Jun",
    b"Jul",
    b"Aug",
    b"Sep",
    b"Oct",
    b"Nov",
    b"Dec",
)
_LOCAL: Final = "%b %d %H:%M:%S.%f"
_FORMATS: Final = {
    (has_year, directive): TimeFormat(("%Y " if has_year else "") + _LOCAL + directive)
    for has_year in (False, True)
    for directive in ("", " %z", " %Z")
}


class SyslogTimestamp(NamedTuple):
    """The parts of a timestamp in a syslog line, before a missing year or time zone is added.

    Attributes:
        year: Digits of the year, or None.
        month: Abbreviated English name of the month. Empty for Unix time.
        day: Digits of the day of the month. Empty for Unix time.
        clock: Time of day as `HH:MM:SS`, or the seconds of a Unix time.
        fraction: Digits of the fraction of a second.
        zone: Time zone as written, or None.
        is_iso: Whether the timestamp is in ISO 8601 format.
        text: The whole timestamp as written.
        start: Offset of the timestamp in the line.
        end: Offset after the timestamp in the line.
    """

    year: bytes | None
    month: bytes
    day: bytes
    clock: bytes
    fraction: bytes
    zone: bytes | None
    is_iso: bool
    text: bytes
    start: int
    end: int

    @classmethod
    def from_unix(cls, seconds: bytes, fraction: bytes, start: int, end: int) -> SyslogTimestamp:
        """Create a timestamp from a Unix time in seconds.

        Args:
            seconds: Digits of the seconds since 1970.
            fraction: Digits after the decimal point.
            start: Offset of the time in the line.
            end: Offset after the time in the line.
        """
        return cls(
            None, b"", b"", seconds, fraction, None, False, seconds + b"." + fraction, start, end
        )

    def read_ms(self, context: TimeContext) -> int | None:
        """Convert the timestamp to Unix milliseconds, rounded down.

        Args:
            context: Context that provides the year and the time zone if the timestamp has none.

        Returns:
            Unix milliseconds. None if the date or the time of day does not exist, or if the time
            zone of the context is needed but unknown.
        """
        if not self.month:
            return (
                int(self.clock) * 1000 + fraction_us(self.fraction) // 1000 if self.clock else None
            )
        zone = self.zone
        if zone is None:
            return self._read("", b"", context)
        if (offset := _offset_of(zone)) is not None:
            return self._read(" %z", b" " + offset, context)
        found = self._read(" %Z", b" " + zone, context)
        if found is not None:
            return found
        if (known := _OFFSETS.get(zone)) is not None:
            return self._read(" %z", b" " + known, context)
        return self._read("", b"", context)

    def _read(self, directive: str, zone: bytes, context: TimeContext) -> int | None:
        text = b"%s %s %s.%s%s" % (self.month, self.day, self.clock, self.fraction, zone)
        if self.year is None:
            return _FORMATS[False, directive].read_ms(text, context)
        return _FORMATS[True, directive].read_ms(self.year + b" " + text, context)


def is_known_zone(word: bytes) -> bool:
    """Return whether a word is a known time zone abbreviation or a UTC offset.

    Args:
        word: Word after a time, such as `CET`, `UTC` or `GMT+2`.
    """
    return word in _OF_UTC or word in _OFFSETS or _FROM_UTC.fullmatch(word) is not None


def parse_timestamp_at(line: bytes, offset: int, *, after_pri: bool) -> SyslogTimestamp | None:
    """Parse the timestamp that starts at an offset of a syslog line.

    Args:
        line: Line to parse.
        offset: Start offset of the timestamp.
        after_pri: Whether the timestamp follows a syslog priority such as `<13>`. If true, date
            formats that are ambiguous without a priority are accepted too.

    Returns:
        The timestamp, or None if there is no timestamp at this offset. An invalid timestamp that
        looks like ISO 8601 is returned too; its `read_ms` returns None.
    """
    first = line[offset : offset + 1]
    if first.isalpha():
        return _month_first(line, offset)
    if not first.isdigit():
        return None
    if match := _ISO.match(line, offset):
        year, month, day, mark, clock, fraction = match.groups()
        if mark == b"T" or after_pri:
            found = _after(
                line, match, year, _month(month), day, clock, fraction, is_iso=mark == b"T"
            )
            if mark == b" " or line[found.end : found.end + 1] in (b" ", b":", b""):
                return found
    if match := _ISO_LIKE.match(line, offset):  # it was meant as one, and is none
        text = match[0].removesuffix(b":")
        return SyslogTimestamp(
            None, b"", b"", b"", b"", None, True, text, offset, offset + len(text)
        )
    if match := _YEAR_FIRST.match(line, offset):
        year, month, day, clock, fraction = match.groups()
        return _after(line, match, year, month, day, clock, fraction)
    if match := _DAY_FIRST.match(line, offset):
        day, month, year, clock, fraction = match.groups()
        return _after(line, match, year, month, day, clock, fraction)
    if after_pri and (match := _SLASHED.match(line, offset)):
        month, day, year, year_first, month_after, day_last, clock, fraction = match.groups()
        if year is None:
            year, month, day = year_first, month_after, day_last
        return _after(line, match, year, _month(month), day, clock, fraction)
    return None


def _month_first(line: bytes, at: int) -> SyslogTimestamp | None:
    match = _MONTH_FIRST.match(line, at)
    if match is None:
        return None
    month, day, year, clock, fraction = match.groups()
    return _after(line, match, year, month, day, clock, fraction)


def _month(digits: bytes) -> bytes:
    number = int(digits)
    return _MONTHS[number] if 0 < number < len(_MONTHS) else b"no month"


def _after(
    line: bytes,
    match: re.Match[bytes],
    year: bytes | None,
    month: bytes,
    day: bytes,
    clock: bytes,
    fraction: bytes | None,
    *,
    is_iso: bool = False,
) -> SyslogTimestamp:
    at, zone = match.end(), None
    for _ in range(2):
        if year is None and (found := _YEAR.match(line, at)):
            year, at = found[1], found.end()
        if (
            zone is None
            and (found := _OFFSET.match(line, at) or _WORD.match(line, at))
            and _is_zone(found[1])
        ):
            zone, at = found[1], found.end()
    return SyslogTimestamp(
        year,
        month,
        day,
        clock,
        fraction or b"0",
        zone,
        is_iso,
        line[match.start() : at],
        match.start(),
        at,
    )


def _is_zone(text: bytes) -> bool:
    return text[:1] in b"+-" or is_known_zone(text)


def _offset_of(zone: bytes) -> bytes | None:
    if zone in _OF_UTC:
        return b"Z"
    match = _FROM_UTC.fullmatch(zone)
    return None if match is None else match[1] + match[2].rjust(2, b"0") + (match[3] or b"00")
