"""Local timestamps in free text, parsed by a `datetime.strptime` format, independent of the locale.

Parts that a format omits are taken from the range, never from a clock. Of all times that a text can
mean, the result is the latest one that is not ahead of observed_at by more than `future_seconds`,
or the earliest one if all are ahead.

    year, month, day    any; a day of the week (`%a`) matters only if one of them is missing
    AM or PM of `%I`    either
    zone                the range's; a local time that occurs twice at a change of the clocks has
                        two meanings; one that is skipped has the offset before the change
    %Z                  UTC, GMT or Z, or an abbreviation that the range's zone uses at that time

A missing year is searched nine years back, a missing day one year back, or 15 days if neither month
nor year is given. A missing time of day is 0:00. Names of months and days are English, in any case.
`%f` accepts 1 to 9 digits.
"""

from __future__ import annotations

import calendar
import dataclasses
import datetime as dt
import re
from collections.abc import Iterator
from typing import Any, Final
from zoneinfo import ZoneInfo

from hourmark_delivery_service.parsing.times.timestamps import EPOCH_ORDINAL, fraction_us

_MONTHS: Final = {name.lower().encode(): i for i, name in enumerate(calendar.month_abbr)}
_WEEKDAYS: Final = {name.lower().encode(): i for i, name in enumerate(calendar.day_abbr)}
_ZONED_YEARS: Final = (
    1900,
    9000,
)  # outside of them a zone cannot matter, and the calendar's ends are near
_YEARS_BACK: Final = 9  # enough to reach a 29th of February across a century that is no leap year
_DAYS_BACK: Final = (
    16  # enough for a day of the week, and for an abbreviation within the lateness that is usual
)
_DAYS_BACK_IN_YEAR: Final = 367
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000

_ABBREVIATED_MONTH: Final = f"(?P<b>{'|'.join(calendar.month_abbr[1:])})"
_DAY: Final = r"(?P<d>3[01]|[12]\d|[0 ]?[1-9])"
_DIRECTIVES: Final = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d\d)",
    "m": r"(?P<m>1[0-2]|0?[1-9])",
    "d": _DAY,
    "e": _DAY,
    "j": r"(?P<j>\d{1,3})",
    "H": r"(?P<H>2[0-3]|[01]\d|\d)",
    "I": r"(?P<I>1[0-2]|0?[1-9])",
    "M": r"(?P<M>[0-5]\d|\d)",
    "S": r"(?P<S>[0-5]\d|\d)",
    "f": r"(?P<f>\d{1,9})",
    "b": _ABBREVIATED_MONTH,
    "h": _ABBREVIATED_MONTH,
    "B": f"(?P<B>{'|'.join(calendar.month_name[1:])})",
    "a": f"(?P<a>{'|'.join(calendar.day_abbr)})",
    "A": f"(?P<A>{'|'.join(calendar.day_name)})",
    "p": r"(?P<p>AM|PM)",
    "z": r"(?P<z>Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)",
    "Z": r"(?P<Z>[A-Za-z]{1,6}|[+-]\d\d)",
    "%": "%",
}
_COMBINED: Final = {"T": "%H:%M:%S", "R": "%H:%M", "D": "%m/%d/%y", "F": "%Y-%m-%d"}


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TimeContext:
    """The context for parsing timestamps that lack a year, date or time zone.

    Attributes:
        observed_at_ms: Observation time of the data, in Unix milliseconds.
        future_seconds: Maximum time between the observation and a later timestamp, in seconds.
        zone: Time zone of the data, or None if its name is not in the time zone data.
        minutes_ms: Cache of parsed timestamps without their seconds, used by `TimeFormat`.
    """

    observed_at_ms: int
    future_seconds: int
    zone: ZoneInfo | None  # None: there is no zone of that name
    minutes_ms: dict[tuple[Any, ...], tuple[int, ...]] = dataclasses.field(
        default_factory=dict
    )  # what was read so far, by all but seconds and fraction

    @property
    def latest_ms(self) -> int:
        """Return the latest plausible time in Unix milliseconds.

        This is the observation time plus `future_seconds`. A timestamp without a year or a date is
        ambiguous. The latest possible time that is not after `latest_ms` is used.
        """
        return self.observed_at_ms + self.future_seconds * 1000

    @property
    def latest_date(self) -> dt.date:
        """Return the latest plausible date of a timestamp in any time zone.

        This is the day after the UTC date of `latest_ms`. It limits the search for the date of a
        timestamp without one.
        """
        return dt.date.fromordinal(
            min(EPOCH_ORDINAL + self.latest_ms // _DAY_MS + 1, dt.date.max.toordinal())
        )


class TimeFormat:
    """A compiled `strptime` format for parsing timestamps, independent of the locale.

    Names of months and days are English and case-insensitive.

    Args:
        time_format: Format with directives such as `%Y`.

    Raises:
        ValueError: If the format contains an unsupported directive, a repeated part, or a day
            without a month.
    """

    def __init__(self, time_format: str) -> None:
        self._pattern = re.compile(_expression(time_format).encode(), re.IGNORECASE)
        self._groups = self._pattern.groupindex.keys()
        self._minute_groups = tuple(
            index - 1 for name, index in self._pattern.groupindex.items() if name not in ("S", "f")
        )
        self._has_seconds, self._has_fraction = "S" in self._groups, "f" in self._groups
        if "d" in self._groups and not self._groups & {"m", "b", "B"}:
            raise ValueError("%d needs a month beside it")

    def read_ms(self, text: bytes, context: TimeContext) -> int | None:
        """Parse a timestamp in this format.

        If parts are missing, for example the year, several times are possible. The result is the
        latest of them that is not after `latest_ms` of the context. If all are after it, the
        earliest is returned.

        Args:
            text: Text that must match the whole format.
            context: Context that completes the timestamp.

        Returns:
            Unix milliseconds, rounded down and negative before 1970. None if the text does not
            match the format or the time does not exist.
        """
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        groups = match.groups()
        key = (self, *(groups[i] for i in self._minute_groups))
        minutes_ms = context.minutes_ms.get(key)
        if minutes_ms is None:
            minutes_ms = context.minutes_ms[key] = self._minutes_ms(match.groupdict(), context)
        found_s, found_f = (
            match["S"] if self._has_seconds else b"0",
            match["f"] if self._has_fraction else b"0",
        )
        within_ms = int(found_s) * 1000 + fraction_us(found_f) // 1000
        if len(minutes_ms) > 1:
            return next(
                (ms + within_ms for ms in minutes_ms if ms + within_ms <= context.latest_ms),
                minutes_ms[-1] + within_ms,
            )
        return minutes_ms[0] + within_ms if minutes_ms else None

    def _minutes_ms(self, found: dict[str, bytes], context: TimeContext) -> tuple[int, ...]:
        minutes_ms: list[int] = []
        for moment_s in self._moments(found, context):
            if minutes_ms and minutes_ms[-1] > context.latest_ms:
                minutes_ms.pop()  # ahead with its first second
            minutes_ms.append(moment_s * 1000)
            if minutes_ms[-1] + _MINUTE_MS <= context.latest_ms:
                break  # not ahead with its last one
        return tuple(minutes_ms)

    def _moments(self, found: dict[str, bytes], context: TimeContext) -> Iterator[int]:
        minutes_s = _minutes_of_day_s(found)
        for date in self._dates(found, context.latest_date):
            for minute_s in minutes_s:
                local_s = (date.toordinal() - EPOCH_ORDINAL) * 86_400 + minute_s
                if _ZONED_YEARS[0] <= date.year <= _ZONED_YEARS[1]:
                    yield from _instants(local_s, found, context)
                else:
                    yield local_s  # refused as too late or future in any zone

    def _dates(self, found: dict[str, bytes], latest: dt.date) -> Iterator[dt.date]:
        year, weekday = _year(found), _weekday(found)
        if not self._groups & {"d", "j"}:
            yield from _days_back(year, _month(found), weekday, latest)
        elif year is not None:
            if (date := _date(year, found)) is not None:
                yield date
        else:
            for earlier in range(latest.year, max(latest.year - _YEARS_BACK - 1, 0), -1):
                date = _date(earlier, found)
                if date is not None and date <= latest and weekday in (None, date.weekday()):
                    yield date


def _expression(time_format: str) -> str:
    parts: list[str] = []
    for token in re.findall(r"%.|\s+|[^%\s]+|%$", time_format, re.DOTALL):
        directive = token.removeprefix("%")
        if token.isspace():
            parts.append(r"\s+")
        elif not token.startswith("%"):
            parts.append(re.escape(token))
        elif directive in _COMBINED:
            parts.append(_expression(_COMBINED[directive]))
        elif directive in _DIRECTIVES:
            parts.append(_DIRECTIVES[directive])
        else:
            raise ValueError(
                f"the directive {token} cannot be read; allowed are "
                f"{sorted(_DIRECTIVES | _COMBINED)}"
            )
    expression = "".join(parts)
    try:
        re.compile(expression)
    except re.error as error:
        raise ValueError(f"the time format {time_format!r} names a part twice: {error}") from error
    return expression


def _minutes_of_day_s(found: dict[str, bytes]) -> tuple[int, ...]:
    minute_s = int(found.get("M") or 0) * 60
    if not found.get("I"):
        return (int(found.get("H") or 0) * 3600 + minute_s,)
    hour_s = int(found["I"]) % 12 * 3600
    half = (found.get("p") or b"").upper()
    return tuple(
        offset_s + hour_s + minute_s
        for name, offset_s in ((b"PM", 12 * 3600), (b"AM", 0))
        if half in (name, b"")
    )


def _year(found: dict[str, bytes]) -> int | None:
    if found.get("y"):
        return int(found["y"]) + (2000 if int(found["y"]) < 69 else 1900)  # POSIX, as strptime
    return int(found["Y"]) if found.get("Y") else None


def _month(found: dict[str, bytes]) -> int | None:
    if name := found.get("b") or found.get("B"):
        return _MONTHS[name[:3].lower()]
    return int(found["m"]) if found.get("m") else None


def _weekday(found: dict[str, bytes]) -> int | None:
    name = found.get("a") or found.get("A")
    return _WEEKDAYS[name[:3].lower()] if name else None


def _date(year: int, found: dict[str, bytes]) -> dt.date | None:
    try:
        if found.get("j"):
            date = dt.date(year, 1, 1) + dt.timedelta(days=int(found["j"]) - 1)
            return date if date.year == year else None
        return dt.date(year, _month(found) or 1, int(found["d"]))
    except (ValueError, OverflowError):
        return None


def _days_back(
    year: int | None, month: int | None, weekday: int | None, latest: dt.date
) -> Iterator[dt.date]:
    if year is not None:
        if not dt.MINYEAR <= year <= dt.MAXYEAR:
            return
        latest = max(min(latest, dt.date(year, 12, 31)), dt.date(year, month or 1, 1))
    back = _DAYS_BACK if year is None and month is None else _DAYS_BACK_IN_YEAR
    for ordinal in range(latest.toordinal(), max(latest.toordinal() - back, 0), -1):
        date = dt.date.fromordinal(ordinal)
        if (
            year in (None, date.year)
            and month in (None, date.month)
            and weekday in (None, date.weekday())
        ):
            yield date


def _instants(local_s: int, found: dict[str, bytes], context: TimeContext) -> Iterator[int]:
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
    before, after = (_reading(local_s, fold, context.zone) for fold in (0, 1))
    # Of a local time that the zone skips, the offset after it gives the earlier instant: PEP 495.
    readings = {before} if before[0] > after[0] else {before, after}
    for instant, name in sorted(readings, reverse=True):
        if not abbreviation or name.upper() == abbreviation:
            yield instant


def _offset_s(offset: bytes) -> int:
    if offset.upper() == b"Z":
        return 0
    seconds = int(offset[1:3]) * 3600 + int(offset[-2:]) * 60
    return -seconds if offset[:1] == b"-" else seconds


def _reading(local_s: int, fold: int, zone: ZoneInfo) -> tuple[int, str]:
    local = (dt.datetime(1970, 1, 1) + dt.timedelta(seconds=local_s)).replace(
        fold=fold, tzinfo=zone
    )
    return int(local.timestamp()), local.tzname() or ""
