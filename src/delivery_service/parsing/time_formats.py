"""Local timestamps of free text, read by a `datetime.strptime` format; compiled once, without the process's locale.

What a format leaves out is taken from the range, never from a clock:

    year            of the years around observed_at, the latest that is not ahead of it by more than `future_seconds`
    the whole date  likewise, of the days around it
    zone            the range's; a local time that a change of the clocks makes twice is, by the same rule, the later of
                    the two unless that is ahead likewise; one that it skips is read with the offset before it
    %Z              UTC, GMT or Z, or an abbreviation that the range's zone has at that time

Names of months and days are English, in any case. `%f` takes 1 to 9 digits.
"""

from __future__ import annotations

import calendar
import dataclasses
import datetime as dt
import re
from collections.abc import Iterator
from typing import Any, Final
from zoneinfo import ZoneInfo

from delivery_service.parsing.timestamps import EPOCH_ORDINAL, fraction_us

_MONTHS: Final = {name.lower().encode(): i for i, name in enumerate(calendar.month_abbr) if name}
_MONTHS_FULL: Final = {name.lower().encode(): i for i, name in enumerate(calendar.month_name) if name}
_DAYS: Final = "|".join(calendar.day_abbr)
_DAYS_FULL: Final = "|".join(calendar.day_name)
_ZONED_YEARS: Final = (1900, 9000)  # outside of them a zone cannot matter, and the calendar's ends are near
_YEARS_BACK: Final = 9  # enough to reach a 29th of February across a century that is no leap year

_DIRECTIVES: Final = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d\d)",
    "m": r"(?P<m>1[0-2]|0?[1-9])",
    "d": r"(?P<d>3[01]|[12]\d|[0 ]?[1-9])",
    "e": r"(?P<d>3[01]|[12]\d|[0 ]?[1-9])",
    "j": r"(?P<j>\d{1,3})",
    "H": r"(?P<H>2[0-3]|[01]\d|\d)",
    "I": r"(?P<I>1[0-2]|0?[1-9])",
    "M": r"(?P<M>[0-5]\d|\d)",
    "S": r"(?P<S>[0-5]\d|\d)",
    "f": r"(?P<f>\d{1,9})",
    "b": f"(?P<b>{'|'.join(n for n in calendar.month_abbr if n)})",
    "h": f"(?P<b>{'|'.join(n for n in calendar.month_abbr if n)})",
    "B": f"(?P<B>{'|'.join(n for n in calendar.month_name if n)})",
    "a": f"(?:{_DAYS})",
    "A": f"(?:{_DAYS_FULL})",
    "p": r"(?P<p>AM|PM)",
    "z": r"(?P<z>Z|[+-]\d\d:?[0-5]\d)",
    "Z": r"(?P<Z>[A-Za-z]{1,6}|[+-]\d\d)",
    "%": "%",
}
_COMBINED: Final = {"T": "%H:%M:%S", "R": "%H:%M", "D": "%m/%d/%y", "F": "%Y-%m-%d"}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TimeContext:
    """What a timestamp without year or zone is read against."""

    observed_at_ms: int
    future_seconds: int
    zone_name: str
    zone: ZoneInfo | None  # None: there is no zone of that name
    minutes: dict[tuple[Any, ...], int | None] = dataclasses.field(
        default_factory=dict
    )  # what was read so far, by all but seconds and fraction

    @property
    def latest_s(self) -> float:
        """Unix seconds after which a reading is taken for an earlier one."""
        return self.observed_at_ms / 1000 + self.future_seconds


class TimeFormat:
    """One compiled format. ValueError, naming the directive, if it has one that cannot be read."""

    def __init__(self, time_format: str) -> None:
        self._pattern = re.compile(_expression(time_format).encode(), re.IGNORECASE)
        self._groups = frozenset(self._pattern.groupindex)
        self._minute_groups = tuple(index - 1 for name, index in self._pattern.groupindex.items() if name not in ("S", "f"))
        self._has_seconds, self._has_fraction = "S" in self._groups, "f" in self._groups
        if "d" in self._groups and not self._groups & {"m", "b", "B"}:
            raise ValueError("%d needs a month beside it")

    def read_ms(self, text: bytes, context: TimeContext) -> int | None:
        """Unix milliseconds (rounded down; negative before 1970) of `text`, or None if it does not have this format."""
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        groups = match.groups()
        key = (self, *(groups[i] for i in self._minute_groups))
        if key in context.minutes:
            minute_s = context.minutes[key]
        else:
            minute_s = context.minutes[key] = self._minute_s(match.groupdict(), context)
        if minute_s is None:
            return None
        found_s, found_f = match["S"] if self._has_seconds else b"0", match["f"] if self._has_fraction else b"0"
        return (minute_s + int(found_s)) * 1000 + fraction_us(found_f) // 1000

    def _minute_s(self, found: dict[str, bytes], context: TimeContext) -> int | None:
        """The minute, Unix seconds: of all that the text may mean the latest that is not ahead, else the earliest."""
        moment = None
        for moment in self._moments(found, context):
            if moment <= context.latest_s:
                break
        return moment

    def _moments(self, found: dict[str, bytes], context: TimeContext) -> Iterator[int]:
        """Every instant that the text may mean, without its seconds, the latest first."""
        minute_s = _minute_of_day_s(found)
        for date in self._dates(found, context):
            local_s = (date.toordinal() - EPOCH_ORDINAL) * 86_400 + minute_s
            if _ZONED_YEARS[0] <= date.year <= _ZONED_YEARS[1]:
                yield from _instants(local_s, found, context)
            else:
                yield local_s  # refused as too late or future in any zone

    def _dates(self, found: dict[str, bytes], context: TimeContext) -> Iterator[dt.date]:
        observed = dt.datetime.fromtimestamp(context.observed_at_ms // 1000, dt.UTC).date()
        if not self._groups & {"m", "b", "B", "j", "Y", "y"}:
            yield from (observed + dt.timedelta(days=days) for days in (1, 0, -1))
            return
        years: Iterator[int]
        if "Y" in self._groups:
            years = iter((int(found["Y"]),))
        elif "y" in self._groups:
            short = int(found["y"])
            years = iter((short + (2000 if short < 69 else 1900),))  # POSIX, as strptime
        else:
            years = iter(range(observed.year + 1, max(observed.year - _YEARS_BACK, 0), -1))
        for year in years:
            date = _date(year, found)
            if date is not None:
                yield date


def _expression(time_format: str) -> str:
    parts: list[str] = []
    directives = iter(re.findall(r"%.|\s+|[^%\s]+|%$", time_format, re.DOTALL))
    for token in directives:
        if token.isspace():
            parts.append(r"\s+")
        elif not token.startswith("%"):
            parts.append(re.escape(token))
        elif token[1:] in _COMBINED:
            parts.append(_expression(_COMBINED[token[1:]]))
        elif token[1:] in _DIRECTIVES:
            parts.append(_DIRECTIVES[token[1:]])
        else:
            raise ValueError(f"the directive {token} cannot be read; allowed are {sorted(_DIRECTIVES | _COMBINED)}")
    try:
        re.compile("".join(parts))
    except re.error as error:
        raise ValueError(f"the time format {time_format!r} names a part twice: {error}") from error
    return "".join(parts)


def _minute_of_day_s(found: dict[str, bytes]) -> int:
    """The minute's start, in seconds of the day."""
    hours = int(found.get("H") or 0)
    if found.get("I"):
        hours = int(found["I"]) % 12 + (12 if (found.get("p") or b"").upper() == b"PM" else 0)
    return hours * 3600 + int(found.get("M") or 0) * 60


def _date(year: int, found: dict[str, bytes]) -> dt.date | None:
    try:
        if found.get("j"):
            date = dt.date(year, 1, 1) + dt.timedelta(days=int(found["j"]) - 1)
            return date if date.year == year else None
        return dt.date(year, _month(found), int(found.get("d") or 1))
    except (ValueError, OverflowError):
        return None


def _month(found: dict[str, bytes]) -> int:
    if found.get("b"):
        return _MONTHS[found["b"].lower()]
    if found.get("B"):
        return _MONTHS_FULL[found["B"].lower()]
    return int(found.get("m") or 1)


def _instants(local_s: int, found: dict[str, bytes], context: TimeContext) -> Iterator[int]:
    """The instants at which a clock in the text's zone, or else in the range's, shows this local time; the latest first."""
    offset = found.get("z")
    if offset:
        yield local_s - _offset_s(offset)
        return
    abbreviation = (found.get("Z") or b"").decode().upper()
    if abbreviation in ("UTC", "GMT", "Z"):
        yield local_s
        return
    if context.zone is None:
        return
    readings = {_instant(local_s, fold, context.zone) for fold in (0, 1)}
    skipped = len(readings) == 2 and all(_shown(s, context.zone) != local_s for s, _ in readings)
    if skipped:
        readings = {_instant(local_s, 0, context.zone)}
    for instant, name in sorted(readings, reverse=True):
        if not abbreviation or name.upper() == abbreviation:
            yield instant


def _offset_s(offset: bytes) -> int:
    if offset.upper() == b"Z":
        return 0
    seconds = int(offset[1:3]) * 3600 + int(offset[-2:]) * 60
    return -seconds if offset[:1] == b"-" else seconds


def _instant(local_s: int, fold: int, zone: ZoneInfo) -> tuple[int, str]:
    local = (dt.datetime(1970, 1, 1) + dt.timedelta(seconds=local_s)).replace(fold=fold, tzinfo=zone)
    offset = local.utcoffset()
    assert offset is not None, "a ZoneInfo has an offset at every time"
    return local_s - int(offset.total_seconds()), local.tzname() or ""


def _shown(instant_s: int, zone: ZoneInfo) -> int:
    """What a clock in the zone shows at that instant, as seconds since 1970-01-01 of local time."""
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=instant_s)
    offset = zone.utcoffset(moment.astimezone(zone))
    assert offset is not None
    return instant_s + int(offset.total_seconds())
