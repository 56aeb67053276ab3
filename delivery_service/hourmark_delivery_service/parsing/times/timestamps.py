"""Timestamps with a date, a time and an offset: RFC 3339, and its narrower form in RFC 5424.

`T` and `Z` must be upper case. A leap second (`:60`) is rejected, as in RFC 5424, because it has no
Unix time. Results are Unix microseconds; callers that need milliseconds round down.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from typing import Final

EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()
SYSLOG_FRACTION_DIGITS: Final = 6  # RFC 5424, TIME-SECFRAC
FRACTION_DIGITS_MAX: Final = 9  # RFC 3339 sets no limit; nanoseconds are the finest in use

_RFC3339 = re.compile(
    rb"(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))"
)


def rfc3339_us(text: bytes, fraction_digits_max: int = FRACTION_DIGITS_MAX) -> int | None:
    """Convert an RFC 3339 timestamp to Unix microseconds.

    Args:
        text: Timestamp with upper-case `T` and `Z`. Leap seconds are not accepted.
        fraction_digits_max: Maximum number of fraction digits. Digits after the sixth are accepted
            but ignored.

    Returns:
        Unix microseconds, negative before 1970. None if the text is not a valid timestamp.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    date, hours, minutes, seconds, fraction, sign, offset_hours, offset_minutes = match.groups()
    day = _day_of(date)
    if day is None or (fraction is not None and len(fraction) > fraction_digits_max):
        return None
    total = day * 86_400 + int(hours) * 3_600 + int(minutes) * 60 + int(seconds)
    if sign is not None:
        offset = int(offset_hours) * 3_600 + int(offset_minutes) * 60
        total += offset if sign == b"-" else -offset
    return total * 1_000_000 + (fraction_us(fraction) if fraction is not None else 0)


def fraction_us(digits: bytes) -> int:
    """Convert the fraction digits of a second to microseconds.

    Args:
        digits: One or more digits after the decimal point. Only the first six are used.
    """
    return int(digits[:6].ljust(6, b"0"))


@functools.lru_cache(maxsize=4096)
def _day_of(date: bytes) -> int | None:
    try:
        return dt.date.fromisoformat(date.decode()).toordinal() - EPOCH_ORDINAL
    except ValueError:
        return None
