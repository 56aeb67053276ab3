"""Where the chains of buckets begin, so that lines that are there already come into the hours of their own. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Final

from hourmark.hours import Hour

BUCKETS_MAX: Final = 300  # behind the present one: each is closed, whether there is a line in it or not


def first_hour(oldest: Iterable[str | None], now_ms: int, bucket_seconds: int) -> Hour:
    """The hour of the oldest line, as far as it is not too many buckets ago. `oldest`: of each file, ISO 8601."""
    now = Hour.of(now_ms, bucket_seconds)
    times_ms = [int(dt.datetime.fromisoformat(time).timestamp() * 1000) for time in oldest if time is not None]
    wanted = Hour.of(max(0, min([now_ms, *times_ms])), bucket_seconds)
    return max(wanted, Hour(now.start_s - BUCKETS_MAX * bucket_seconds, bucket_seconds))
