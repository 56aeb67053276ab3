"""Chooses the first bucket, so that existing lines come into the hours in which they were written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from hourmark.records.hours import Hour


def choose_first_hour(oldest: Iterable[str | None], now_ms: int, bucket_seconds: int) -> Hour:
    """Return the hour of the oldest line, or the earliest allowed hour if that is later.

    Args:
        oldest: Time of the oldest line of each file, ISO 8601; None if unknown.
        now_ms: Current time, Unix milliseconds.
        bucket_seconds: Bucket length in seconds.

    Returns:
        The current hour if no time is known. The earliest allowed hour is a fixed number of buckets
        before the current one.
    """
    times_ms = [
        int(dt.datetime.fromisoformat(time).timestamp() * 1000)
        for time in oldest
        if time is not None
    ]
    wanted = Hour.containing(max(0, min([now_ms, *times_ms])), bucket_seconds)
    return max(wanted, Hour.containing(now_ms, bucket_seconds).earliest_chain_start())


def choose_added_first_hour(before: str | None, wanted: Hour, now_ms: int) -> Hour | None:
    """Return the first hour of types that are added to an existing configuration.

    Args:
        before: First hour in the settings, such as `2026-11-21T05`; None if there is none.
        wanted: First hour that the lines of the new types need.
        now_ms: Current time, Unix milliseconds.

    Returns:
        The earlier of both, or `wanted` if `before` is too many buckets ago; None if `before` is
        None.

    Raises:
        ValueError: `before` is not an hour.
    """
    if before is None:
        return None
    theirs = Hour.parse(before, wanted.length_s)
    return (
        min(theirs, wanted)
        if theirs >= Hour.containing(now_ms, wanted.length_s).earliest_chain_start()
        else wanted
    )
