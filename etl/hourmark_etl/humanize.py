"""How numbers, times and durations are written human-readable."""

from __future__ import annotations

import datetime as dt
from typing import Final

_UNITS: Final = ((86_400.0, "days"), (3600.0, "h"), (60.0, "min"))


def duration(seconds: float) -> str:
    """`45 s`, `5 min`, `2.5 h`, `3 days`: the largest unit of which there are two."""
    for size, unit in _UNITS:
        if (count := seconds / size) >= 2:
            return (
                f"{count:,.1f} {unit}"
                if count < 10 and round(count, 1) % 1
                else f"{count:,.0f} {unit}"
            )
    return f"{seconds:.0f} s"


def iso(time_ms: int) -> str:
    """ISO 8601 in UTC, with milliseconds."""
    return (
        dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def counted(count: float, noun: str, plural: str = "") -> str:
    """`1 file`, `1,200 files`."""
    return f"{count:,.0f} {noun if round(count) == 1 else plural or noun + 's'}"
