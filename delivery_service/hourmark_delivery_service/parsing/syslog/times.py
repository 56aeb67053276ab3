"""Times in headers of syslog under parser 3: found at a place in a line, and read later, when year
and zone are known.

The forms stand in `syslog_forms`. A zone is read as the first of these that it can be:

1. an offset, `Z`, or a name of UTC
2. an abbreviation that the range's zone has at that time
3. an abbreviation of RFC 5322 (section 4.3) or of a European, Japanese or Australian zone that
   stands for one offset only
4. a name that nothing is known of: then the time is of the range's zone
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
    """A time as a line has it.

    `month` is a name, empty of Unix time; `zone` is the text of one, None where there is none.
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
        """A number of seconds since 1970 and its decimals."""
        return cls(
            None, b"", b"", seconds, fraction, None, False, seconds + b"." + fraction, start, end
        )

    def read_ms(self, context: TimeContext) -> int | None:
        """Return Unix milliseconds, rounded down, or None where the calendar, the clock or the
        range's zone has no such time.
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
    """Whether a word stands for a zone wherever it follows a time."""
    return word in _OF_UTC or word in _OFFSETS or _FROM_UTC.fullmatch(word) is not None


def parse_timestamp_at(line: bytes, offset: int, *, after_pri: bool) -> SyslogTimestamp | None:
    """Return the time that begins at `at`, or None.

    `after_pri`: dates that other logs begin with as well count too.
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
    """With what follows the clock: a zone, and a year where there is none yet."""
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
    """As TimeFormat reads one; None of a name."""
    if zone in _OF_UTC:
        return b"Z"
    match = _FROM_UTC.fullmatch(zone)
    return None if match is None else match[1] + match[2].rjust(2, b"0") + (match[3] or b"00")
