"""Bucket hours: their labels, their folders, and points in time. Pure functions.

The layout is described in docs/reference/formats.md. All times are in UTC, and spans are half-open:
they contain their start and not their end.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

HOUR_S: Final = 3600
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LABEL: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}(?::\d{2})?")


def parse_time(value: dt.datetime | str) -> dt.datetime:
    """Return a point in time as a datetime in UTC.

    Args:
        value: A datetime with a time zone, or text in the format ISO 8601 such as `2026-11-21T05`
            or `2026-11-21T05:30:00+01:00`. Text without an offset is in UTC.

    Raises:
        ValueError: The text is not a time, or the datetime has no time zone.
    """
    if isinstance(value, str):
        try:
            parsed = dt.datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError(
                f"{value!r} is not a time; write it as 2026-11-21T05 or 2026-11-21T05:30:00Z"
            ) from error
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    if value.tzinfo is None:
        raise ValueError(
            f"the time {value.isoformat()} has no time zone; add one, for example "
            "with .replace(tzinfo=datetime.UTC)"
        )
    return value.astimezone(dt.UTC)


def to_microseconds(time: dt.datetime) -> int:
    """Return a point in time in Unix microseconds."""
    return (time - EPOCH) // dt.timedelta(microseconds=1)


def from_seconds(seconds: int) -> dt.datetime:
    """Return Unix seconds as a datetime in UTC."""
    return EPOCH + dt.timedelta(seconds=seconds)


def parse_label(label: str, length_s: int) -> int:
    """Return the start of the hour with a label, in Unix seconds.

    Args:
        label: Text such as `2026-11-21T05`, or `2026-11-21T05:07` for buckets of minutes.
        length_s: Length of a bucket in seconds.

    Raises:
        ValueError: The label is not that of a bucket of this length.
    """
    if not _LABEL.fullmatch(label):
        raise ValueError(f"{label!r} is not the label of an hour")
    start_s = to_microseconds(parse_time(label)) // 1_000_000
    if format_label(start_s, length_s) != label or start_s % length_s:
        raise ValueError(f"{label!r} is not the label of a bucket of {length_s} s")
    return start_s


def format_label(start_s: int, length_s: int) -> str:
    """Return the label of an hour, such as `2026-11-21T05`.

    Args:
        start_s: Start of the hour in Unix seconds.
        length_s: Length of a bucket in seconds. Labels of buckets of minutes contain the minute.
    """
    minute = "" if length_s == HOUR_S else ":%M"
    return from_seconds(start_s).strftime(f"%Y-%m-%dT%H{minute}")


def bucket_folder(event_type: str, start_s: int, length_s: int) -> str:
    """Return the path of a bucket's folder, relative to the root of the buckets.

    Args:
        event_type: Name of the event type.
        start_s: Start of the hour in Unix seconds.
        length_s: Length of a bucket in seconds.
    """
    minute = "" if length_s == HOUR_S else "/minute=%M"
    return f"{event_type}/{from_seconds(start_s).strftime(f'date=%Y-%m-%d/hour=%H{minute}')}"


def floor(seconds: int, length_s: int) -> int:
    """Return the start of the bucket that contains a point in time, in Unix seconds."""
    return seconds - seconds % length_s
