"""The buckets below a root: their types and hours, and the selection of events."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Collection, Sequence
from typing import Any, Literal

from hourmark_reading.coverage import (
    HourCoverage,
    Span,
    assess_hours,
    check_complete,
    plan_files,
)
from hourmark_reading.decoding import EventDecoder
from hourmark_reading.events import Events
from hourmark_reading.hours import floor, parse_time, to_microseconds
from hourmark_reading.index import BucketIndex
from hourmark_reading.markers import GRADES, BucketMarker
from hourmark_reading.store import BucketStore

Time = dt.datetime | str


def open_buckets(url: str, **options: Any) -> Buckets:
    """Return the buckets below a root folder.

    The store is first accessed when a method of the result is called.

    Args:
        url: URL of the root, which is the setting `storage.root` of the site. Examples:
            `file:///data/hourmark`, `webhdfs://namenode:9870/hourmark`, and the URL of any other
            store that fsspec supports.
        options: Options of fsspec for the store, such as `user="reader"` for `webhdfs`.
    """
    return Buckets(BucketStore(url, options))


class Buckets:
    """The closed buckets of all event types below a root.

    Instances keep the markers that they read in memory. They are not safe for use by several
    threads.

    Args:
        store: The root of the buckets.
    """

    def __init__(self, store: BucketStore) -> None:
        self._store = store
        self._index = BucketIndex(store)

    def types(self) -> list[str]:
        """Return the names of all event types with a folder, in alphabetical order."""
        return self._index.types()

    def hours(self, event_type: str, start: Time, end: Time) -> list[HourCoverage]:
        """Return the state of each hour that overlaps a span of time.

        Args:
            event_type: Name of the event type.
            start: Start of the span: a datetime with a time zone, or text such as `2026-11-21T05`,
                which is in UTC without an offset.
            end: End of the span, which does not belong to it.

        Returns:
            The hours in ascending order. If the site's buckets are shorter than an hour, an entry
            describes one bucket.

        Raises:
            UnknownEventType: The type has no folder.
            InvalidMarker: A marker is damaged.
            ValueError: A time is not valid, or `start` is not before `end`.
        """
        return self._assess(event_type, _parse_span(start, end), late=False)[0]

    def read(
        self,
        event_type: str,
        start: Time,
        end: Time,
        *,
        columns: Sequence[str] | None = None,
        on_missing: Literal["error", "skip"] = "error",
        grades: Collection[str] = ("proved",),
        late: bool = True,
    ) -> Events:
        """Select the events of a type with an event time in a span.

        This reads markers, and the header of one data file for the schema. Data files are read by
        the methods of the result. The columns are those of the newest schema among these files.

        Args:
            event_type: Name of the event type.
            start: Start of the span: a datetime with a time zone, or text such as `2026-11-21T05`,
                which is in UTC without an offset.
            end: End of the span, which does not belong to it.
            columns: Names of the fields to read, in this order; None for all fields. Other fields
                are not decoded.
            on_missing: `error` raises `MissingHours` if an hour of the span is not complete. `skip`
                leaves out the events of such hours; `Events.hours` lists the hours that are read.
            grades: Grades of closed hours that count as complete.
            late: Whether to include events that arrived after their hour was closed. They are in
                later buckets, so the markers of all later buckets of the type are read. Each is a
                file of a few kilobytes.

        Raises:
            MissingHours: An hour is open or removed, or has another grade.
            UnknownEventType: The type has no folder.
            UnknownColumns: The type has no field with one of the names, or no bucket of the type
                has events, so that its fields are not known.
            UnsupportedField: A field has a type that no Arrow type expresses.
            InvalidMarker: A marker is damaged.
            DamagedAvroFile: The header of a data file is damaged.
            ValueError: An argument is not valid.
        """
        span = _parse_span(start, end)
        _check_options(columns, on_missing, grades)
        hours, markers, length_s = self._assess(event_type, span, late=late)
        if on_missing == "error":
            check_complete(event_type, hours, grades)
        complete = tuple(hour for hour in hours if hour.is_complete(grades))
        tasks = tuple(plan_files(event_type, span, complete, markers, late=late))
        schema = self._index.newest_schema(
            event_type, [(task.schema_id, task.path) for task in tasks], length_s
        )
        decoder = EventDecoder(schema, None if columns is None else tuple(columns))
        return Events(self._store, tasks, decoder, complete, decoder.schema)

    def _assess(
        self, event_type: str, span: Span, *, late: bool
    ) -> tuple[list[HourCoverage], dict[int, BucketMarker], int]:
        index, length_s = self._index, self._index.bucket_seconds(event_type)
        first_s, end_s = floor(span[0] // 1_000_000, length_s), -(-span[1] // 1_000_000)
        starts = range(first_s, end_s, length_s)
        folders = index.starts_from(event_type, first_s, length_s)
        inside = itertools.takewhile(lambda start_s: start_s < end_s, folders)
        markers = index.read_markers(event_type, inside, length_s)
        later = index.starts_from(event_type, end_s, length_s)
        if late:
            markers |= index.read_markers(event_type, later, length_s)
        else:  # the next marker is enough to know why an hour before it has no bucket
            found = (index.read_markers(event_type, [start_s], length_s) for start_s in later)
            markers |= next(filter(None, found), {})
        removed = index.read_removed(event_type, first_s, end_s, length_s)
        return assess_hours(starts, length_s, markers, removed), markers, length_s


def _parse_span(start: Time, end: Time) -> Span:
    start_us, end_us = to_microseconds(parse_time(start)), to_microseconds(parse_time(end))
    if not 0 <= start_us < end_us:
        raise ValueError(
            f"the start {start} must be before the end {end}, and not before 1970; the end does "
            "not belong to the span"
        )
    return start_us, end_us


def _check_options(columns: Sequence[str] | None, on_missing: str, grades: Collection[str]) -> None:
    if on_missing not in ("error", "skip"):
        raise ValueError(f"on_missing is {on_missing!r}; allowed: 'error', 'skip'")
    if isinstance(grades, str) or not set(grades) <= set(GRADES):
        raise ValueError(f"grades is {grades!r}; allowed: a list of {', '.join(GRADES)}")
    if columns is not None and (
        isinstance(columns, str) or not columns or len(set(columns)) < len(columns)
    ):
        raise ValueError(
            f"columns is {columns!r}; allowed: a list of field names, each once, or None for all"
        )
