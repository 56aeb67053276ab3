"""The closing progress of each event type, read from HDFS with the judge's client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark_verify.judge.buckets import StoredBucket, closed_buckets
from hourmark_verify.judge.webhdfs import WebHdfsReader, hdfs_path

_PROVED: Final = "proved"


class TypeClosingState(NamedTuple):
    """The closing progress of one event type.

    A bucket holds the events of one type and time interval. A closed bucket no longer changes. It
    is `proved` if it was verified to contain every event that a delivery service acknowledged.

    Attributes:
        proved_with_events: Number of closed buckets that are proved and not empty.
        end_ms: End of the last closed bucket, in Unix milliseconds; 0 if no bucket is closed.
        latest: Label of the last bucket that is proved and not empty, such as 2026-11-21T05:07; ""
            if there is none.
    """

    proved_with_events: int = 0
    end_ms: int = 0
    latest: str = ""


def read_closing_states(hdfs: WebHdfsReader, root: str) -> dict[str, TypeClosingState]:
    """Read the closing progress of each event type from HDFS.

    Args:
        hdfs: WebHDFS client.
        root: Root of the buckets, as a path or as hdfs://host:port/path.

    Returns:
        The closing state of each event type. Types without closed buckets are omitted.

    Raises:
        ValueError: The marker (`_SUCCESS` file) of a bucket is invalid.
        httpx.HTTPError: HDFS cannot be read.
    """
    return closing_states(closed_buckets(hdfs, hdfs_path(root)))


class ClosingStallDetector:
    """A timer that measures how long ago the last bucket was closed, to detect a stall.

    Call `update` regularly with the current closing state, and then read `stalled_s`.

    Args:
        clock: Source of time. The measurement starts at construction.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[str, TypeClosingState] | None = None
        self._changed_s = clock.monotonic_s()

    def update(self, closing: dict[str, TypeClosingState]) -> bool:
        """Store the current closing state, and restart the timer if the state has changed.

        Args:
            closing: Closing state by event type, as returned by `read_closing_states`.

        Returns:
            True if the state differs from that of the previous call, and on the first call.
        """
        if closing == self._last:
            return False
        self._last, self._changed_s = closing, self._clock.monotonic_s()
        return True

    @property
    def stalled_s(self) -> float:
        """Seconds since the closing state last changed, or since construction if it never did."""
        return self._clock.monotonic_s() - self._changed_s


def closing_states(buckets: Iterable[StoredBucket]) -> dict[str, TypeClosingState]:
    """Return the closing progress of each event type.

    Args:
        buckets: Closed buckets of any types. The buckets of each type must be sorted by time.

    Returns:
        The closing state of each event type; an empty dictionary if there are no buckets.
    """
    found: dict[str, TypeClosingState] = {}
    for bucket in buckets:
        before = found.get(bucket.type, TypeClosingState())
        counts = bucket.marker.grade == _PROVED and bucket.marker.events > 0
        latest = bucket.hour if counts else before.latest
        found[bucket.type] = TypeClosingState(
            before.proved_with_events + counts, max(before.end_ms, bucket.end_ms), latest
        )
    return found


def are_buckets_closed(
    closing: Mapping[str, TypeClosingState], wanted: Mapping[str, int], end_ms: int
) -> bool:
    """Return whether all given event types have reached their targets.

    A type has reached its target if enough of its closed buckets are proved and not empty, and if
    its last closed bucket ends at `end_ms` or later. A bucket is proved if it was verified to
    contain every acknowledged event.

    Args:
        closing: Closing state of each event type.
        wanted: Maps each event type to the required number of proved, non-empty buckets. Other
            types are not checked.
        end_ms: Earliest allowed end of a type's last closed bucket, in Unix milliseconds.
    """
    states = {name: closing.get(name, TypeClosingState()) for name in wanted}
    return all(
        states[name].proved_with_events >= count and states[name].end_ms >= end_ms
        for name, count in wanted.items()
    )


def format_closing(closing: Mapping[str, TypeClosingState]) -> str:
    """Format the number of proved, non-empty buckets of each event type for a progress line.

    Args:
        closing: Closing state of each event type.

    Returns:
        Text such as "ad-shown 2, lines 3"; "none" if no type has a closed bucket.
    """
    return (
        ", ".join(f"{name} {state.proved_with_events}" for name, state in sorted(closing.items()))
        or "none"
    )
