"""Chooses the first hourly bucket of new event types.

From the first bucket on, each hour has a bucket, also an empty one. Lines of earlier hours are
back-filled: they get buckets of their own hours, and hours without lines get none. The first bucket
is therefore a recent one.
"""

from __future__ import annotations

from collections.abc import Iterable

from hourmark.records.hours import Hour
from hourmark_declare.line_trial import to_unix_ms


def choose_first_hour(oldest: Iterable[str | None], now_ms: int, bucket_seconds: int) -> Hour:
    """Choose the first hourly bucket of new event types.

    Args:
        oldest: Time of the oldest line of each log file in ISO 8601; None if unknown.
        now_ms: Current time in Unix milliseconds.
        bucket_seconds: Bucket length in seconds.

    Returns:
        The bucket before the current one if a line is older than the current one; older lines are
        back-filled. Otherwise the current bucket.
    """
    times_ms = [to_unix_ms(time) for time in oldest if time is not None]
    current = Hour.containing(now_ms, bucket_seconds)
    oldest_hour = Hour.containing(max(0, min([now_ms, *times_ms])), bucket_seconds)
    return max(oldest_hour, current.previous())


def choose_added_first_hour(before: str | None, wanted: Hour, now_ms: int) -> Hour | None:
    """Choose the first hourly bucket of event types that are added to an existing configuration.

    Args:
        before: Value of `types.first_hour` in the settings, such as `2026-11-21T05`; None if it is
            not set.
        wanted: First bucket that the added log files need, from `choose_first_hour`.
        now_ms: Current time in Unix milliseconds.

    Returns:
        The earlier of `before` and `wanted`, or `wanted` if `before` is more than 300 buckets in
        the past. None if `before` is None.

    Raises:
        ValueError: `before` is not a valid hour.
    """
    if before is None:
        return None
    theirs = Hour.parse(before, wanted.length_s)
    return (
        min(theirs, wanted)
        if theirs >= Hour.containing(now_ms, wanted.length_s).earliest_chain_start()
        else wanted
    )
