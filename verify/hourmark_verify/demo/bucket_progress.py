"""Progress of closing: which buckets are closed, read from HDFS with the judge's client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark_verify.judge.buckets import StoredBucket, closed_buckets
from hourmark_verify.judge.webhdfs import WebHdfsReader, hdfs_path

_PROVED: Final = "proved"


class TypeClosing(NamedTuple):
    """The closing state of one event type.

    Attributes:
        proved_with_events: number of non-empty buckets with the grade proved.
        end_ms: end of the last closed bucket in Unix milliseconds; 0 without buckets.
        latest: label of the last non-empty, proved bucket; empty without one.
    """

    proved_with_events: int = 0
    end_ms: int = 0
    latest: str = ""


def read_closing_states(hdfs: WebHdfsReader, root: str) -> dict[str, TypeClosing]:
    """Read the closing state of all event types from HDFS.

    Args:
        hdfs: WebHDFS client.
        root: root of the buckets, as a path or as hdfs://host:port/path.

    Returns:
        Closing state by type; types without closed buckets are omitted.

    Raises:
        ValueError: if a marker is not valid.
        httpx.HTTPError: if HDFS cannot be read.
    """
    return closing_states(closed_buckets(hdfs, hdfs_path(root)))


class ClosingWatch:
    """A record of when the closing state of any type last changed.

    Args:
        clock: source of time; a change is assumed at the time of construction.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[str, TypeClosing] | None = None
        self._changed_s = clock.monotonic_s()

    def update(self, closing: dict[str, TypeClosing]) -> bool:
        """Store the latest state and return whether it differs from the previous one."""
        if closing == self._last:
            return False
        self._last, self._changed_s = closing, self._clock.monotonic_s()
        return True

    @property
    def stalled_s(self) -> float:
        """Seconds since the last change."""
        return self._clock.monotonic_s() - self._changed_s


def closing_states(buckets: Iterable[StoredBucket]) -> dict[str, TypeClosing]:
    """Return the closing state by type for a sequence of closed buckets.

    Args:
        buckets: closed buckets, for each type sorted by time.

    Returns:
        Closing state by type; an empty dictionary if there are no buckets.
    """
    found: dict[str, TypeClosing] = {}
    for bucket in buckets:
        before = found.get(bucket.type, TypeClosing())
        counts = bucket.marker.grade == _PROVED and bucket.marker.events > 0
        latest = bucket.hour if counts else before.latest
        found[bucket.type] = TypeClosing(
            before.proved_with_events + counts, max(before.end_ms, bucket.end_ms), latest
        )
    return found


def is_closed_enough(
    closing: Mapping[str, TypeClosing], wanted: Mapping[str, int], end_ms: int
) -> bool:
    """Return whether every wanted type has enough proved buckets and is closed far enough.

    Args:
        closing: closing state by type.
        wanted: required number of non-empty proved buckets by type.
        end_ms: Unix milliseconds up to which each type must be closed.
    """
    states = {name: closing.get(name, TypeClosing()) for name in wanted}
    return all(
        states[name].proved_with_events >= count and states[name].end_ms >= end_ms
        for name, count in wanted.items()
    )


def format_closing(closing: Mapping[str, TypeClosing]) -> str:
    """Format the number of proved buckets by type for a progress line; "none" if empty."""
    return (
        ", ".join(f"{name} {state.proved_with_events}" for name, state in sorted(closing.items()))
        or "none"
    )
