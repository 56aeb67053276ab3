"""When the lines of a file are due: their own spacing, pressed into the span of the demo.

Half of a line's moment is its own timestamp's place between the file's first and last, half its place among the lines: so bursts
and pauses can be seen, and yet a file of one burst and one straggler covers the whole span. Timestamps of common kinds are
recognised; a line without one has that of the line before; where few lines have one, lines are spread evenly.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from array import array
from collections.abc import Iterable
from typing import Final

_MONTHS: Final = {name.encode(): number for number, name in enumerate(calendar.month_abbr) if name}
_LOOK_AT_BYTES: Final = 200  # of a line: timestamps stand at its beginning
_RECOGNISED_MIN: Final = 0.5  # of all lines, else the spacing is even
_NO_YEAR: Final = 2000  # syslog has none; any leap year will do, as only differences count

_CLOCK: Final = rb"(?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)"
_KINDS: Final = tuple(
    re.compile(kind)
    for kind in (
        rb"(?P<Y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)[T ]" + _CLOCK,  # ISO 8601, log4j
        rb"\[?[A-Z][a-z]{2} (?P<b>[A-Z][a-z]{2}) +(?P<d>\d{1,2}) " + _CLOCK + rb"(?:\.\d+)? (?P<Y>\d{4})",  # Apache's error log
        rb"(?P<d>\d\d)/(?P<b>[A-Z][a-z]{2})/(?P<Y>\d{4}):" + _CLOCK,  # access logs
        rb"(?:^|>)(?P<b>[A-Z][a-z]{2}) +(?P<d>\d{1,2}) " + _CLOCK,  # syslog
        rb"^(?P<y>\d\d)(?P<m>\d\d)(?P<d>\d\d) (?P<H>\d\d)(?P<M>\d\d)(?P<S>\d\d) ",  # HDFS
        rb"^(?P<y>\d\d)/(?P<m>\d\d)/(?P<d>\d\d) " + _CLOCK,  # Spark
    )
)


def timestamp(line: bytes) -> float | None:
    """Seconds of some epoch, or None where no timestamp is recognised."""
    head = line[:_LOOK_AT_BYTES]
    for kind in _KINDS:
        match = kind.search(head)
        if match is not None and (seconds := _seconds(match.groupdict())) is not None:
            return seconds
    return None


def moments(lines: Iterable[bytes]) -> array[float]:
    """For each line a number from 0 to 1, never falling."""
    stamps = array("d")
    latest, recognised = 0.0, 0
    first: float | None = None
    for line in lines:
        seconds = timestamp(line)
        if seconds is not None:
            recognised += 1
            first = seconds if first is None else first
            latest = max(latest, seconds)
        stamps.append(latest)
    if not stamps:
        return stamps
    if first is None or recognised < _RECOGNISED_MIN * len(stamps):
        return array("d", (_place(index, len(stamps)) for index in range(len(stamps))))
    duration = stamps[-1] - first
    own = (max(0.0, stamp - first) / duration if duration > 0 else _place(i, len(stamps)) for i, stamp in enumerate(stamps))
    return array("d", ((moment + _place(index, len(stamps))) / 2 for index, moment in enumerate(own)))


def _place(index: int, count: int) -> float:
    return index / (count - 1) if count > 1 else 0.0


def _seconds(found: dict[str, bytes]) -> float | None:
    year = int(found["Y"]) if "Y" in found else 2000 + int(found["y"]) if "y" in found else _NO_YEAR
    month = int(found["m"]) if "m" in found else _MONTHS.get(found["b"], 0)
    try:
        moment = dt.datetime(year, month, int(found["d"]), int(found["H"]), int(found["M"]), int(found["S"]), tzinfo=dt.UTC)
    except ValueError:
        return None
    return moment.timestamp()
