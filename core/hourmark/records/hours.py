"""Hours: the buckets' spans of UTC event time, and their paths.

An `Hour` is an hour long in production; a root's bucket length may be a shorter divisor of it (a
minute in tests and the demo), which adds a `minute=MM` level to the path. Intervals are half-open:
[start, end).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re

# buckets before the present one with which chains begin, unless somebody says so: each is closed,
# full or empty
BEHIND_MAX = 300
_LABEL = re.compile(r"(\d{4}-\d{2}-\d{2})T(\d{2})(?::(\d{2}))?")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Hour:
    """A span of `length_s` seconds that begins at `start_s`, Unix seconds, aligned to its
    length.
    """

    start_s: int
    length_s: int = 3600

    def __post_init__(self) -> None:
        if self.length_s % 60 or self.length_s < 60 or 3600 % self.length_s:
            raise ValueError(
                f"a bucket is 3600 s or whole minutes that divide an hour, not {self.length_s} s"
            )
        if self.start_s % self.length_s or self.start_s < 0:
            raise ValueError(f"{self.start_s} s is not the start of a bucket of {self.length_s} s")

    @classmethod
    def containing(cls, time_ms: int, length_s: int = 3600) -> Hour:
        """The hour that holds this time (Unix milliseconds)."""
        return cls(hour_start_s(time_ms, length_s), length_s)

    @classmethod
    def parse(cls, label: str, length_s: int = 3600) -> Hour:
        """The inverse of `str`: `2026-11-21T05`, or `2026-11-21T05:07`; ValueError otherwise."""
        match = _LABEL.fullmatch(label)
        if match is None:
            raise ValueError(
                f"{label!r} is no hour; write it as 2026-11-21T05, or 2026-11-21T05:07 "
                "where buckets are minutes"
            )
        date, hour, minute = match.groups()
        start = dt.datetime.fromisoformat(f"{date}T{hour}:{minute or '00'}:00+00:00")
        return cls(int(start.timestamp()), length_s)

    @property
    def end_s(self) -> int:
        """The first second after it."""
        return self.start_s + self.length_s

    @property
    def end_ms(self) -> int:
        """The first millisecond after it."""
        return self.end_s * 1000

    def next(self) -> Hour:
        """The hour that follows."""
        return Hour(self.end_s, self.length_s)

    def previous(self) -> Hour:
        """The hour that precedes; ValueError before 1970."""
        return Hour(self.start_s - self.length_s, self.length_s)

    def earliest_chain_start(self) -> Hour:
        """Of the present one: where a chain of buckets may begin that is to hold what is there
        already.
        """
        return Hour(max(0, self.start_s - BEHIND_MAX * self.length_s), self.length_s)

    def bucket_path(self, event_type: str) -> str:
        """The folder of this hour's bucket, relative to the root."""
        start = dt.datetime.fromtimestamp(self.start_s, dt.UTC)
        level = "" if self.length_s == 3600 else f"/minute={start:%M}"
        return f"{event_type}/date={start:%Y-%m-%d}/hour={start:%H}{level}"

    def __str__(self) -> str:
        start = dt.datetime.fromtimestamp(self.start_s, dt.UTC)
        return f"{start:%Y-%m-%dT%H}" if self.length_s == 3600 else f"{start:%Y-%m-%dT%H:%M}"


def hour_start_s(time_ms: int, length_s: int) -> int:
    """The start of the hour that holds this time, in Unix seconds: `Hour.containing` without making an
    object.
    """
    seconds = time_ms // 1000
    return seconds - seconds % length_s
