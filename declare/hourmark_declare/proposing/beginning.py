"""Where the chains of buckets begin, so that lines that are there already come into the hours of
their own. Pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from hourmark.records.hours import Hour


def first_hour(oldest: Iterable[str | None], now_ms: int, bucket_seconds: int) -> Hour:
    """The hour of the oldest line, as far as it is not too many buckets ago.

    `oldest`: of each file, ISO 8601.
    """
    times_ms = [
        int(dt.datetime.fromisoformat(time).timestamp() * 1000)
        for time in oldest
        if time is not None
    ]
    wanted = Hour.containing(max(0, min([now_ms, *times_ms])), bucket_seconds)
    return max(wanted, Hour.containing(now_ms, bucket_seconds).earliest_chain_start())


def first_hour_beside(before: str | None, wanted: Hour, now_ms: int) -> Hour | None:
    """Of types that join others: as those had it, while that is not too many buckets ago, and early
    enough.

    `before`: their first hour, as the settings have it; None where these have none, and so begin
    when they are applied.
    """
    if before is None:
        return None
    theirs = Hour.parse(before, wanted.length_s)
    return (
        min(theirs, wanted)
        if theirs >= Hour.containing(now_ms, wanted.length_s).earliest_chain_start()
        else wanted
    )
