"""Decides which hours are complete, and which files contain the events of a range. Pure functions.

The buckets of a type close in the order of their hours, and each marker names the bucket before it.
An hour without a bucket is therefore one of three:

- after the last closed bucket: `open`,
- after the bucket that the next marker names as the previous one, or before the first bucket of the
  type: `empty`, as it was closed without events,
- otherwise `removed`: a tombstone contains its marker, or the chain of markers names a bucket that
  is no longer there.

The markers in tombstones are part of the chain.

Late events are in files `late-…` of a later bucket of their type. The field `late` of its marker
lists their hours, so no data file is opened to find them.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hourmark_reading.errors import MissingHours
from hourmark_reading.hours import bucket_folder, format_label, from_seconds
from hourmark_reading.markers import BucketMarker

Span = tuple[int, int]
"""Half-open span of event times in Unix microseconds."""
_NAMED_HOURS_MAX = 5


class BucketPresence(enum.StrEnum):
    """Whether the storage has the bucket of an hour.

    Attributes:
        CLOSED: The bucket is closed.
        EMPTY: The hour was passed over because it had no events, so it has no bucket.
        OPEN: The bucket is not closed yet.
        REMOVED: The bucket was closed and is no longer there.
    """

    CLOSED = "closed"
    EMPTY = "empty"
    OPEN = "open"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class HourCoverage:
    """State of one hour of an event type.

    Attributes:
        start: Start of the hour.
        end: End of the hour, which does not belong to it.
        state: Whether its bucket is closed, empty, open or removed.
        grade: `proved`, `timed_out` or `forced`; None without a bucket.
        events: Number of events in its bucket, without late events in later buckets.
    """

    start: dt.datetime
    end: dt.datetime
    state: BucketPresence
    grade: str | None
    events: int

    def is_complete(self, grades: Collection[str]) -> bool:
        """Return whether the hour is empty, or closed with one of these grades."""
        return self.state is BucketPresence.EMPTY or self.grade in grades


@dataclass(frozen=True, slots=True)
class FileTask:
    """A file to read, and the event times to select from it.

    Attributes:
        path: Path relative to the root of the buckets.
        records: Number of records in the file.
        bytes: Size of the file.
        blake2b: BLAKE2b digest of the file (16 bytes) in hex.
        schema_id: Id of the writer schema.
        spans: Event times to select; None for all events.
    """

    path: str
    records: int
    bytes: int
    blake2b: str
    schema_id: int
    spans: tuple[Span, ...] | None


def assess_hours(
    starts: Sequence[int],
    length_s: int,
    markers: Mapping[int, BucketMarker],
    removed: Mapping[int, BucketMarker],
) -> list[HourCoverage]:
    """Return the state of consecutive hours.

    Args:
        starts: Starts of the hours in Unix seconds, ascending.
        length_s: Length of an hour in seconds.
        markers: Markers by the start of their hour: those of the given hours, and at least the next
            one after them if it exists.
        removed: Markers of removed buckets, in the same form.
    """
    chain = {**removed, **markers}
    later = [start_s for start_s in chain if not starts or start_s > starts[-1]]
    following = chain[min(later)] if later else None
    found = []
    for start_s in reversed(starts):
        marker = markers.get(start_s)
        if marker is not None:
            state, following = BucketPresence.CLOSED, marker
        elif start_s in removed:
            state, following = BucketPresence.REMOVED, removed[start_s]
        elif following is None:
            state = BucketPresence.OPEN
        elif following.previous_s is None or following.previous_s < start_s:
            state = BucketPresence.EMPTY
        else:
            state = BucketPresence.REMOVED
        found.append(
            HourCoverage(
                from_seconds(start_s),
                from_seconds(start_s + length_s),
                state,
                marker.grade if marker else None,
                marker.events if marker else 0,
            )
        )
    return found[::-1]


def check_complete(event_type: str, hours: Iterable[HourCoverage], grades: Collection[str]) -> None:
    """Check that every hour is complete.

    Args:
        event_type: Event type, for the message.
        hours: Hours to check.
        grades: Grades that count as complete.

    Raises:
        MissingHours: An hour is open or removed, or has another grade.
    """
    missing = [hour for hour in hours if not hour.is_complete(grades)]
    if not missing:
        return
    named = [f"{_label(hour)} ({hour.grade or hour.state})" for hour in missing[:_NAMED_HOURS_MAX]]
    more = len(missing) - len(named)
    raise MissingHours(
        f"{event_type}: {len(missing)} {'hour is' if len(missing) == 1 else 'hours are'} not "
        f"complete: {', '.join(named)}"
        f"{f' and {more} more' if more else ''}. Wait until they are closed "
        f"(`hourmark bucket wait {event_type} HOUR`), read the others with on_missing='skip', or "
        "accept closed hours with another grade with grades=('proved', 'timed_out', 'forced')"
    )


def _label(hour: HourCoverage) -> str:
    length_s = int((hour.end - hour.start).total_seconds())
    return format_label(int(hour.start.timestamp()), length_s)


def plan_files(
    event_type: str,
    span: Span,
    hours: Iterable[HourCoverage],
    markers: Mapping[int, BucketMarker],
    *,
    late: bool,
) -> list[FileTask]:
    """Return the files that contain the events of a span.

    Args:
        event_type: Event type of the buckets.
        span: Event times to read.
        hours: The hours to read. Events of other hours are left out.
        markers: Markers by the start of their hour, including those of all later buckets if `late`.
        late: Whether to read late events.

    Returns:
        First the files of the hours themselves in ascending order, then files with late events.
    """
    chosen = {int(hour.start.timestamp()): hour for hour in hours}
    tasks = []
    for start_s in sorted(chosen.keys() & markers.keys()):
        marker = markers[start_s]
        own = (start_s * 1_000_000, (start_s + marker.length_s) * 1_000_000)
        inside = (max(own[0], span[0]), min(own[1], span[1]))
        tasks += _tasks(event_type, marker, None if inside == own else (inside,), late=False)
    if not late:
        return tasks
    for start_s in sorted(markers):
        wanted = sorted(markers[start_s].late_hours & chosen.keys())
        length_us = markers[start_s].length_s * 1_000_000
        spans = _merge(
            (max(s * 1_000_000, span[0]), min(s * 1_000_000 + length_us, span[1])) for s in wanted
        )
        if spans:
            tasks += _tasks(event_type, markers[start_s], spans, late=True)
    return tasks


def _tasks(
    event_type: str, marker: BucketMarker, spans: tuple[Span, ...] | None, *, late: bool
) -> list[FileTask]:
    folder = bucket_folder(event_type, marker.start_s, marker.length_s)
    return [
        FileTask(
            f"{folder}/{file.name}", file.records, file.bytes, file.blake2b, file.schema_id, spans
        )
        for file in marker.files
        if file.has_late_events == late
    ]


def _merge(spans: Iterable[Span]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for start, end in spans:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return tuple(merged)
