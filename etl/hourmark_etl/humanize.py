"""Formatting of numbers, times and durations for people."""

from __future__ import annotations

import datetime as dt
from typing import Final

_UNITS: Final = ((86_400.0, "days"), (3600.0, "h"), (60.0, "min"))


def format_duration(seconds: float) -> str:
    """Format a duration for people, for example `45 s`, `5 min`, `2.5 h` or `3 days`.

    Args:
        seconds: The duration.

    Returns:
        The duration in the largest unit that gives a value of 2 or more, with at most one decimal.
        Durations under 2 minutes are given in seconds.
    """
    for size, unit in _UNITS:
        if (count := seconds / size) >= 2:
            return (
                f"{count:,.1f} {unit}"
                if count < 10 and round(count, 1) % 1
                else f"{count:,.0f} {unit}"
            )
    return f"{seconds:.0f} s"


def format_iso(time_ms: int) -> str:
    """Format a time as ISO 8601 in UTC with milliseconds.

    Args:
        time_ms: Unix milliseconds.

    Returns:
        A text such as `2026-01-31T12:00:00.000Z`.
    """
    return (
        dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def format_count(count: float, noun: str, plural: str = "") -> str:
    """Format a count with its noun, for example `1 file` or `1,200 files`.

    Args:
        count: The number; it is rounded to an integer.
        noun: The noun in the singular.
        plural: The noun in the plural; empty if the plural is formed by adding `s`.

    Returns:
        The number with thousands separators, followed by the noun in the matching form.
    """
    return f"{count:,.0f} {noun if round(count) == 1 else plural or noun + 's'}"
