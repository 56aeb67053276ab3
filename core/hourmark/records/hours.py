"""Hours: the time spans of buckets, and the paths of their folders.

Production buckets are one hour long. Tests and the demo may use a length of whole minutes that
divides an hour, which adds a level `minute=MM` to the path. Spans are half-open: [start, end).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Iterable

# Limit on how many buckets before the present one a chain begins by default, because each of them
# is closed, even if it is empty.
BEHIND_MAX = 300
_LABEL = re.compile(r"(\d{4}-\d{2}-\d{2})T(\d{2})(?::(\d{2}))?")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Hour:
    """The time span of one bucket of events, in UTC.

    The span is one hour; tests and demos may use shorter spans. An event belongs to the hour that
    contains its event time. Instances sort by start time. The constructor raises `ValueError` if
    the start is not a multiple of the length, or if the length is not a whole number of minutes
    that divides an hour.

    Attributes:
        start_s: Unix seconds at the start.
        length_s: Length in seconds.
    """

    start_s: int
    length_s: int = 3600

    def __post_init__(self) -> None:
        if self.length_s % 60 or self.length_s < 60 or 3600 % self.length_s:
            raise ValueError(
                "the length of a bucket must be 3600 s or whole minutes that divide an hour, "
                f"not {self.length_s} s"
            )
        if self.start_s % self.length_s or self.start_s < 0:
            raise ValueError(
                f"{self.start_s} s is not the start of a bucket with a length of {self.length_s} s"
            )

    @classmethod
    def containing(cls, time_ms: int, length_s: int = 3600) -> Hour:
        """Return the hour (time span of a bucket) that contains a given time.

        Args:
            time_ms: The time in Unix milliseconds.
            length_s: Length of the hour in seconds.

        Raises:
            ValueError: The time is before 1970, or the length is not allowed.
        """
        return cls(hour_start_s(time_ms, length_s), length_s)

    @classmethod
    def parse(cls, label: str, length_s: int = 3600) -> Hour:
        """Parse the string form of an hour, as returned by `str`.

        Args:
            label: Text such as `2026-11-21T05`, or `2026-11-21T05:07` for spans shorter than an
                hour. The time is in UTC.
            length_s: Length of the hour in seconds.

        Raises:
            ValueError: The label does not have this form, or the time is not the start of a span of
                this length.
        """
        match = _LABEL.fullmatch(label)
        if match is None:
            raise ValueError(
                f"{label!r} is not a valid hour; write it as 2026-11-21T05, or as "
                "2026-11-21T05:07 if buckets are shorter than an hour"
            )
        date, hour, minute = match.groups()
        start = dt.datetime.fromisoformat(f"{date}T{hour}:{minute or '00'}:00+00:00")
        return cls(int(start.timestamp()), length_s)

    @property
    def end_s(self) -> int:
        """Return the end of the hour (exclusive) in Unix seconds."""
        return self.start_s + self.length_s

    @property
    def end_ms(self) -> int:
        """Return the end of the hour (exclusive) in Unix milliseconds."""
        return self.end_s * 1000

    def next(self) -> Hour:
        """Return the next hour, which starts at the end of this one and has the same length."""
        return Hour(self.end_s, self.length_s)

    def previous(self) -> Hour:
        """Return the previous hour, which ends at the start of this one and has the same length.

        Raises:
            ValueError: The hour would start before 1970.
        """
        return Hour(self.start_s - self.length_s, self.length_s)

    def earliest_chain_start(self) -> Hour:
        """Return the earliest hour at which the buckets of a new event type may begin.

        Call this method on the current hour. Every hour since the first bucket gets a bucket, even
        without events, so the number of hours is limited to 300.

        Returns:
            The hour 300 spans before this one, but not before 1970.
        """
        return Hour(max(0, self.start_s - BEHIND_MAX * self.length_s), self.length_s)

    def bucket_path(self, event_type: str) -> str:
        """Return the path of this hour's bucket, relative to the storage root.

        Args:
            event_type: Name of the event type.

        Returns:
            A path such as `click/date=2026-11-21/hour=05`.
        """
        start = dt.datetime.fromtimestamp(self.start_s, dt.UTC)
        level = "" if self.length_s == 3600 else f"/minute={start:%M}"
        return f"{event_type}/date={start:%Y-%m-%d}/hour={start:%H}{level}"

    def __str__(self) -> str:
        start = dt.datetime.fromtimestamp(self.start_s, dt.UTC)
        return f"{start:%Y-%m-%dT%H}" if self.length_s == 3600 else f"{start:%Y-%m-%dT%H:%M}"


def hour_start_s(time_ms: int, length_s: int) -> int:
    """Return the start of the hour that contains a time.

    Args:
        time_ms: The time in Unix milliseconds.
        length_s: Length of the hour in seconds.

    Returns:
        Unix seconds, a multiple of `length_s`.
    """
    seconds = time_ms // 1000
    return seconds - seconds % length_s


def group_consecutive(hours: Iterable[Hour]) -> list[tuple[Hour, Hour]]:
    """Group hours into runs of consecutive hours without gaps.

    Args:
        hours: Hours of the same length in ascending order.

    Returns:
        The first and the last hour of each run, in ascending order; empty if there are no hours.
    """
    runs: list[tuple[Hour, Hour]] = []
    for hour in hours:
        if runs and runs[-1][1].end_s == hour.start_s:
            runs[-1] = (runs[-1][0], hour)
        else:
            runs.append((hour, hour))
    return runs
