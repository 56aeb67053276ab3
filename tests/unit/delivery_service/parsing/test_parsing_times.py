"""Timestamps: with everything in them, and with year, date or zone left out."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark.rules.revision import PARSER
from hourmark_delivery_service.parsing.times.formats import TimeContext, TimeFormat
from hourmark_delivery_service.parsing.times.timestamps import rfc3339_us
from hourmark_delivery_service.parsing.zones import load_zone


def ms(text: str) -> int:
    return round(dt.datetime.fromisoformat(text).timestamp() * 1000)


def read(time_format: str, text: str, observed: str, zone: str = "UTC") -> int | None:
    context = TimeContext(
        observed_at_ms=ms(observed), future_seconds=900, zone=load_zone(zone, PARSER.zones)
    )
    return TimeFormat(time_format).read_ms(text.encode(), context)


@given(st.datetimes(min_value=dt.datetime(1900, 1, 1)), st.integers(-23 * 60, 23 * 60))
def test_rfc3339_agrees_with_the_standard_library(local: dt.datetime, offset_minutes: int) -> None:
    moment = local.replace(tzinfo=dt.timezone(dt.timedelta(minutes=offset_minutes)))
    expected = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    assert rfc3339_us(moment.isoformat().encode()) == expected


@given(st.binary(max_size=40))
def test_rfc3339_never_raises(text: bytes) -> None:
    rfc3339_us(text)


FORMATS = [
    "%Y-%m-%d %H:%M:%S",
    "%d/%b/%Y:%H:%M:%S",
    "%b %d %Y %I:%M:%S %p",
    "%y%m%d %H%M%S",
    "%A %d %B %Y %T",
    "%Y %j %H:%M:%S",
]


@given(st.sampled_from(FORMATS), st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2068, 1, 1)))
def test_full_formats_agree_with_strptime(time_format: str, local: dt.datetime) -> None:
    text = local.strftime(time_format)
    expected = dt.datetime.strptime(text, time_format.replace("%T", "%H:%M:%S")).replace(
        tzinfo=dt.UTC
    )
    assert read(time_format, text, "2068-01-02T00:00:00Z") == round(expected.timestamp() * 1000)


@pytest.mark.slow
@given(
    st.sampled_from([*FORMATS, "%b %d %H:%M:%S", "%H:%M", "%z %f"]),
    st.text(max_size=30),
    st.sampled_from(["UTC", "Europe/Berlin", "x"]),
)
def test_a_compiled_format_never_raises(time_format: str, text: str, zone: str) -> None:
    read(time_format, text, "2026-11-21T00:00:00Z", zone)


@pytest.mark.parametrize(
    ("text", "observed", "expected"),
    [
        ("Nov 21 01:00:00", "2026-11-21T01:40:00Z", "2026-11-21T01:00:00Z"),
        ("Dec 31 23:59:59", "2027-01-01T00:00:10Z", "2026-12-31T23:59:59Z"),
        (
            "Jan  1 00:00:05",
            "2026-12-31T23:59:00Z",
            "2027-01-01T00:00:05Z",
        ),  # the host's clock is ahead a little
        (
            "Jan  1 00:20:00",
            "2026-12-31T23:59:00Z",
            "2026-01-01T00:20:00Z",
        ),  # too far ahead: last year's
        ("Feb 29 12:00:00", "2027-06-01T00:00:00Z", "2024-02-29T12:00:00Z"),
    ],
)
def test_a_missing_year_is_the_latest_that_is_not_ahead(
    text: str, observed: str, expected: str
) -> None:
    assert read("%b %d %H:%M:%S", text, observed) == ms(expected)


@pytest.mark.parametrize(
    ("text", "observed", "expected"),
    [
        ("23:59:58", "2026-11-21T00:00:01Z", "2026-11-20T23:59:58Z"),
        ("00:00:01", "2026-11-20T23:59:58Z", "2026-11-21T00:00:01Z"),
        ("12:00:00", "2026-11-21T13:00:00Z", "2026-11-21T12:00:00Z"),
    ],
)
def test_a_missing_date_is_the_latest_that_is_not_ahead(
    text: str, observed: str, expected: str
) -> None:
    assert read("%H:%M:%S", text, observed) == ms(expected)


@pytest.mark.parametrize(
    ("text", "observed", "expected"),
    [
        ("2026-07-01 12:00:00", "2026-07-01T10:00:00Z", "2026-07-01T12:00:00+02:00"),
        ("2026-12-01 12:00:00", "2026-12-01T11:00:00Z", "2026-12-01T12:00:00+01:00"),
        (
            "2026-10-25 02:30:00",
            "2026-10-25T00:30:00Z",
            "2026-10-25T02:30:00+02:00",
        ),  # the second is an hour ahead
        ("2026-10-25 02:30:00", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00+01:00"),
        ("2026-10-25 02:30:00", "2026-10-26T00:00:00Z", "2026-10-25T02:30:00+01:00"),
        (
            "2026-03-29 02:30:00",
            "2026-03-29T02:00:00Z",
            "2026-03-29T02:30:00+01:00",
        ),  # skipped: the offset before it
    ],
)
def test_local_times_around_a_change_of_the_clocks(text: str, observed: str, expected: str) -> None:
    assert read("%Y-%m-%d %H:%M:%S", text, observed, "Europe/Berlin") == ms(expected)


def test_offsets_and_abbreviations_win_over_the_ranges_zone() -> None:
    observed = "2026-11-21T12:00:00Z"
    assert read("%Y-%m-%d %H:%M:%S %z", "2026-11-21 12:00:00 -0530", observed, "Asia/Tokyo") == ms(
        "2026-11-21T12:00:00-05:30"
    )
    assert read("%Y-%m-%d %H:%M:%S %Z", "2026-11-21 12:00:00 UTC", observed, "Asia/Tokyo") == ms(
        "2026-11-21T12:00:00Z"
    )
    assert read(
        "%Y-%m-%d %H:%M:%S %Z", "2026-10-25 02:30:00 CEST", observed, "Europe/Berlin"
    ) == ms("2026-10-25T02:30:00+02:00")
    assert (
        read("%Y-%m-%d %H:%M:%S %Z", "2026-11-21 12:00:00 CEST", observed, "Europe/Berlin") is None
    )
    assert (
        read("%Y-%m-%d %H:%M:%S %Z", "2026-11-21 12:00:00 PST", observed, "Europe/Berlin") is None
    )


@pytest.mark.parametrize(
    ("digits", "expected"),
    [("1", 100), ("12", 120), ("123", 123), ("123456", 123), ("999999999", 999)],
)
def test_fractions_have_any_number_of_digits_and_are_cut(digits: str, expected: int) -> None:
    assert (
        read("%Y-%m-%d %H:%M:%S,%f", f"1970-01-01 00:00:00,{digits}", "1970-01-01T00:00:00Z")
        == expected
    )


@pytest.mark.parametrize("time_format", ["%Q", "%d", "%Y %Y", "%"])
def test_a_format_that_cannot_be_read_is_refused_when_compiled(time_format: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        TimeFormat(time_format)
