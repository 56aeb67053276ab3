"""What a timestamp leaves out: of all that it may mean the latest that is not ahead, against a
search of every local day.
"""

from __future__ import annotations

import datetime as dt
import functools
import random
from collections.abc import Iterable
from zoneinfo import ZoneInfo

import pytest
from tests.support.service.examples import NOW_MS

from hourmark.rules.revision import PARSER
from hourmark_delivery_service.parsing.times.formats import TimeContext, TimeFormat
from hourmark_delivery_service.parsing.zones import load_zone

FUTURE_S = 900
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Los_Angeles",
    "America/St_Johns",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Asia/Tokyo",
    "Australia/Lord_Howe",  # its clocks change by half an hour
    "Pacific/Apia",  # has no 30th of December 2011
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Etc/GMT+12",
    "Africa/Casablanca",
    "Antarctica/Troll",  # its clocks change by two hours
]
DAY_S = 86_400
SEEDS = range(2)


each_zone = pytest.mark.parametrize(
    ("seed", "zone_name"), [(seed, name) for name in ZONES for seed in SEEDS]
)


def observations(rng: random.Random, zone: ZoneInfo) -> list[int]:
    """Milliseconds: anywhere in some years, and close to every change of the zone's clocks
    in them.
    """
    start_s, end_s = (
        int(dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp()) for year in (2011, 2028)
    )
    anywhere = [rng.randrange(start_s * 1000, end_s * 1000) for _ in range(40)]
    changes = (
        rng.sample(found, min(30, len(found))) if (found := changes_s(zone, start_s, end_s)) else []
    )
    return anywhere + [
        change_s * 1000 + rng.randrange(-2 * DAY_S, 2 * DAY_S) * 1000 for change_s in changes
    ]


@functools.cache
def changes_s(zone: ZoneInfo, start_s: int, end_s: int) -> list[int]:
    """The days (Unix seconds) within which the zone's offset changes."""
    days = range(start_s, end_s, DAY_S)
    return [day for day in days if offset_s(day, zone) != offset_s(day + DAY_S, zone)]


def offset_s(instant_s: int, zone: ZoneInfo) -> int:
    offset = dt.datetime.fromtimestamp(instant_s, zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def instants(local: dt.datetime, zone: ZoneInfo) -> list[int]:
    """Unix seconds at which a clock there shows `local`, found by trying; where it never does, by
    the offset before.
    """
    as_utc = int(local.replace(tzinfo=dt.UTC).timestamp())
    offsets = {offset_s(as_utc + hours * 3600, zone) for hours in range(-30, 31)}
    shown = [as_utc - offset for offset in offsets if offset_s(as_utc - offset, zone) == offset]
    if shown:
        return shown
    before = int(local.replace(tzinfo=zone, fold=0).timestamp())  # PEP 495
    assert dt.datetime.fromtimestamp(before, zone).replace(tzinfo=None) != local, "it is skipped"
    return [before]


def latest(locals_: Iterable[dt.datetime], zone: ZoneInfo, observed_ms: int) -> int | None:
    found = (at for local in locals_ for at in instants(local, zone))
    return max(
        (at * 1000 for at in found if at * 1000 <= observed_ms + FUTURE_S * 1000), default=None
    )


def local_days(zone: ZoneInfo, observed_ms: int, back: int) -> list[dt.date]:
    today = dt.datetime.fromtimestamp(observed_ms // 1000, zone).date()
    return [today - dt.timedelta(days=days) for days in range(-4, back)]


def near(rng: random.Random, observed_ms: int, zone: ZoneInfo) -> dt.datetime:
    """A local time: any of a day, or one within minutes of where the future begins, or of the
    observation.
    """
    near_s = observed_ms // 1000 + rng.choice([0, FUTURE_S]) + rng.randrange(-90, 90)
    at_s = rng.choice([near_s, observed_ms // 1000 + rng.randrange(-DAY_S, DAY_S)])
    return dt.datetime.fromtimestamp(at_s, zone).replace(tzinfo=None, fold=0)


def cases(seed: int, zone_name: str) -> Iterable[tuple[random.Random, ZoneInfo, int, dt.datetime]]:
    zone = load_zone(zone_name, PARSER.zones)
    assert zone is not None
    rng = random.Random(f"{seed} {zone_name}")
    for observed_ms in observations(rng, zone):
        yield rng, zone, observed_ms, near(rng, observed_ms, zone)


def read(
    time_format: str,
    text: str,
    observed_ms: int = NOW_MS,
    zone: str = "UTC",
    future_s: int = FUTURE_S,
) -> int | None:
    context = TimeContext(
        observed_at_ms=observed_ms, future_seconds=future_s, zone=load_zone(zone, PARSER.zones)
    )
    return TimeFormat(time_format).read_ms(text.encode(), context)


def ms(*moment: int) -> int:
    """In UTC."""
    return int(dt.datetime(*moment, tzinfo=dt.UTC).timestamp()) * 1000  # type: ignore[arg-type, misc]


def check(
    time_format: str, local: dt.datetime, observed_ms: int, zone: ZoneInfo, expected_ms: int | None
) -> None:
    text = local.strftime(time_format)
    assert read(time_format, text, observed_ms, str(zone.key)) == expected_ms, (
        time_format,
        text,
        observed_ms,
        zone,
    )


@pytest.mark.slow
@each_zone
def test_without_a_date(seed: int, zone_name: str) -> None:
    for _, zone, observed_ms, local in cases(seed, zone_name):
        days = [dt.datetime.combine(day, local.time()) for day in local_days(zone, observed_ms, 4)]
        check("%H:%M:%S", local, observed_ms, zone, latest(days, zone, observed_ms))


@each_zone
def test_with_nothing_but_the_day_of_the_week(seed: int, zone_name: str) -> None:
    for rng, zone, observed_ms, local in cases(seed, zone_name):
        shifted = local - dt.timedelta(days=rng.randrange(7))
        days = [
            day for day in local_days(zone, observed_ms, 10) if day.weekday() == shifted.weekday()
        ]
        expected = latest(
            [dt.datetime.combine(day, shifted.time()) for day in days], zone, observed_ms
        )
        check("%a %H:%M:%S", shifted, observed_ms, zone, expected)


@pytest.mark.slow
@each_zone
def test_without_a_year(seed: int, zone_name: str) -> None:
    for rng, zone, observed_ms, local in cases(seed, zone_name):
        shifted = local - dt.timedelta(days=rng.choice([0, 0, rng.randrange(-200, 200)]))
        years = [year for back in range(-1, 10) if (year := in_year(shifted, shifted.year - back))]
        check("%b %d %H:%M:%S", shifted, observed_ms, zone, latest(years, zone, observed_ms))
        that_day = [
            year for back in range(-2, 12) if (year := by_day_of_year(shifted, shifted.year - back))
        ]
        check("%j %H:%M:%S", shifted, observed_ms, zone, latest(that_day, zone, observed_ms))


@each_zone
def test_a_whole_date_to_the_second(seed: int, zone_name: str) -> None:
    """What comes twice is the later one, unless that is ahead."""
    for _, zone, observed_ms, local in cases(seed, zone_name):
        both = instants(local, zone)
        expected = latest([local], zone, observed_ms)
        check(
            "%Y-%m-%d %H:%M:%S",
            local,
            observed_ms,
            zone,
            min(both) * 1000 if expected is None else expected,
        )


@pytest.mark.slow
@pytest.mark.parametrize("zone_name", ["UTC", "America/New_York", "Pacific/Apia"])
@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_day_or_half_of_the_day(seed: int, zone_name: str) -> None:
    for _, zone, observed_ms, local in cases(seed, zone_name):
        days = local_days(zone, observed_ms, 420)
        of_month = [
            dt.datetime.combine(day, local.time()) for day in days if day.month == local.month
        ]
        check("%b %H:%M:%S", local, observed_ms, zone, latest(of_month[:70], zone, observed_ms))
        halves = [
            dt.datetime.combine(day, local.time()).replace(hour=local.hour % 12 + half)
            for day in local_days(zone, observed_ms, 4)
            for half in (0, 12)
        ]
        check("%I:%M:%S", local, observed_ms, zone, latest(halves, zone, observed_ms))


def in_year(local: dt.datetime, year: int) -> dt.datetime | None:
    try:
        return local.replace(year=year)
    except ValueError:
        return None


def by_day_of_year(local: dt.datetime, year: int) -> dt.datetime | None:
    day = dt.datetime.combine(dt.date(year, 1, 1), local.time()) + dt.timedelta(
        days=local.timetuple().tm_yday - 1
    )
    return day if day.year == year else None


def test_a_minute_that_the_future_begins_in_is_read_by_its_seconds_in_any_order() -> None:
    observed_ms = NOW_MS - FUTURE_S * 1000 + 30_250  # the latest is 01:40:30.250
    at = [
        read("%H:%M:%S.%f", text, observed_ms)
        for text in ("01:40:31.0", "01:40:30.250", "01:40:30.251", "01:39:59.9")
    ]
    yesterday = NOW_MS - DAY_S * 1000
    assert at == [yesterday + 31_000, NOW_MS + 30_250, yesterday + 30_251, NOW_MS - 100]


def test_the_day_of_the_week_finds_the_year_and_never_contradicts_a_whole_date() -> None:
    day_ms = NOW_MS - NOW_MS % (DAY_S * 1000)  # a Saturday
    assert read("%a %b %d %H:%M", "Sat Nov 21 00:00") == day_ms
    assert read("%a %b %d %H:%M", "Sun Nov 21 00:00") == ms(2021, 11, 21)
    assert read("%A %Y-%m-%d", "Sunday 2026-11-21") == day_ms  # as strptime


def test_an_abbreviation_may_lie_days_back() -> None:
    """01:30 CEST, read two days after the clocks went back."""
    assert read("%H:%M %Z", "01:30 CEST", ms(2026, 10, 27, 12), "Europe/Berlin") == ms(
        2026, 10, 24, 23, 30
    )


def test_what_can_only_be_ahead_is_read_as_the_earliest_that_it_may_mean() -> None:
    for time_format, text in (("%Y %H:%M", "2030 12:00"), ("%Y-%m %H:%M", "2030-01 12:00")):
        assert read(time_format, text) == ms(2030, 1, 1, 12)


@pytest.mark.parametrize("observed_ms", [0, 1, (1 << 31) * 1000, 221_845_392_000_000 - 1])
@pytest.mark.parametrize("text", ["0000-01", "0001-01", "9999-12", "1969-07"])
def test_the_calendars_ends_raise_nothing(text: str, observed_ms: int) -> None:
    for future_s in (0, 900, 400 * DAY_S):
        read("%Y-%m", text, observed_ms, "Asia/Tokyo", future_s)
        assert read("%H", "12", observed_ms, "Asia/Tokyo", future_s) is not None
        assert read("%m", text[-2:], observed_ms, "Asia/Tokyo", future_s) is not None
