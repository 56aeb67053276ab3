"""The results of a trace, step by step, with the places that were searched.

"Not found" means only as much as the places that were searched.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Generic, TypeVar

from hourmark.errors import HourmarkError, UsageError
from hourmark.records.audit import AuditRecord
from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark_etl.buckets.reader import Event
from hourmark_etl.model import HourState, ReportedSource

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class SearchResult(Generic[T]):
    """The result of one search during the trace of an event.

    Attributes:
        value: The object that was found; None if there is none in the searched places.
        searched: Readable description of the searched places.
        is_complete: Whether every place that may contain the object was searched, so that a missing
            value proves that the object does not exist.
        error: Readable error message if the search failed, for example because a server did not
            respond; otherwise None.
    """

    value: T | None
    searched: str
    is_complete: bool = False
    error: str | None = None


def found_value(step: SearchResult[T] | None) -> T | None:
    """Return the value of a search result; None if there is no result or it has no value."""
    return None if step is None else step.value


def run_search(searched: str, search: Callable[[], SearchResult[T]]) -> SearchResult[T]:
    """Run one search of a trace and convert its errors to a result, so that others can continue.

    Args:
        searched: Readable description of the places to search, for a failed result.
        search: Function that runs the search.

    Returns:
        The result of `search`. If it raised a `HourmarkError` other than `UsageError`, a result
        whose `value` is None and whose `error` is the message.

    Raises:
        UsageError: Raised by `search`.
    """
    try:
        return search()
    except UsageError:
        raise
    except HourmarkError as error:
        return SearchResult(None, searched, error=str(error))


class ClusterRole(enum.Enum):
    """The role of a Kafka cluster: `EDGE` at a site, or `CENTRAL`. One cluster may have both."""

    EDGE = "edge"
    CENTRAL = "central"


@dataclasses.dataclass(frozen=True, slots=True)
class ByEventId:
    """A search criterion that matches the event with the given id.

    Attributes:
        event_id: Id of the event.
    """

    event_id: EventId


@dataclasses.dataclass(frozen=True, slots=True)
class ByRangePosition:
    """A search criterion that matches the event at a byte offset of a delivered byte range.

    Attributes:
        range_id: Id of the byte range; compared in Kafka and in staged files.
        file_id: Id of the log file; compared in buckets, which do not contain range ids.
        generation: Number of earlier truncations of the file; used with `file_id`.
        position: Byte offset in the file at which the event begins.
    """

    range_id: RangeId
    file_id: str
    generation: int
    position: int


@dataclasses.dataclass(frozen=True, slots=True)
class ByFilePosition:
    """A search criterion that matches the event at a byte offset of a log file; for buckets only.

    Attributes:
        host: Name of the host. A host id matches every host, because buckets do not contain host
            ids.
        file: Id of the file, or its path when it was read.
        generation: Number of earlier truncations of the file; None matches any.
        position: Byte offset in the file at which the event begins.
    """

    host: str
    file: str
    generation: int | None
    position: int


SearchCriterion = ByEventId | ByRangePosition | ByFilePosition


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundAuditRecord:
    """An audit record in Kafka, which confirms the delivery of one byte range of a log file.

    Attributes:
        record: The audit record.
        at_ms: Time at which the record was written, Unix milliseconds.
        topic: Topic of the record.
        partition: Partition of the record.
        offset: Offset of the record.
        other_files: Number of other files with the same path that also contain the requested
            position, among the records that were read.
    """

    record: AuditRecord
    at_ms: int
    topic: str
    partition: int
    offset: int
    other_files: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundKafkaRecord:
    """The record of an event that was found in Kafka.

    Attributes:
        topic: Topic of the record.
        partition: Partition of the record.
        offset: Offset of the record.
        at_ms: Time at which the delivery service wrote the record, Unix milliseconds.
        event_id: Id of the event.
        range_id: Id of the byte range that contains the event.
        event: Values of the fields that all event types have, by name; for a dead letter, of all
            fields.
    """

    topic: str
    partition: int
    offset: int
    at_ms: int
    event_id: EventId
    range_id: RangeId
    event: Event


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundStagedRow:
    """The row of an event in a staged file.

    Attributes:
        path: Path of the file, relative to the storage root.
        event_id: Id of the event.
        range_id: Id of the byte range that contains the event.
        partition: Partition on the central cluster from which the event was staged.
        offset: Offset in this partition.
        hour: Hour of the event's own time.
        listed: Hour of the bucket that will contain the event; None if it is not assigned yet.
    """

    path: str
    event_id: EventId
    range_id: RangeId
    partition: int
    offset: int
    hour: Hour
    listed: Hour | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundBucketRecord:
    """The record of an event in a closed bucket.

    Attributes:
        hour: Hour of the bucket.
        file: Path of the file, relative to the storage root.
        row: Index of the record in the file, from 0.
        event: The decoded event.
        grade: Grade of the bucket.
        closed_at_ms: Time at which the bucket was closed, Unix milliseconds.
    """

    hour: Hour
    file: str
    row: int
    event: Event
    grade: str
    closed_at_ms: int

    @property
    def event_id(self) -> EventId:
        """Return the id of the event."""
        return EventId(self.event["event_id"])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OldestOpenHour:
    """The oldest hour of an event type that is not closed.

    Attributes:
        hour: The hour.
        state: Its state.
    """

    hour: Hour
    state: HourState


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceResults:
    """The results of all searches of the trace of one event.

    A result is None if its search was not run, because the input of the search is not known.

    Attributes:
        is_mirrored: Whether there is a mirror between an edge cluster and the central cluster.
        begins_at: Start of the record that contains the requested position, if no record begins at
            the position itself; otherwise None.
        tailer_reports: The latest reports of the tailer on the requested host, one per log source.
        event_type: Type of the event; None if unknown.
        event_id: Id of the event; None if unknown.
        audit_record: The audit record of the event's byte range.
        edge_record: The event's record on the edge cluster.
        mirror_offset: Next offset of the event's edge partition that the mirror will copy.
        central_record: The event's record on the central cluster.
        staging_offset: Next offset of the event's central partition that will be staged.
        staged_row: The event's row in a staged file.
        bucket_record: The event's record in a closed bucket.
        oldest_open_hour: The oldest hour of the event's type that is not closed.
    """

    is_mirrored: bool
    begins_at: int | None = None
    tailer_reports: SearchResult[tuple[ReportedSource, ...]] | None = None
    event_type: str | None = None
    event_id: EventId | None = None
    audit_record: SearchResult[FoundAuditRecord] | None = None
    edge_record: SearchResult[FoundKafkaRecord] | None = None
    mirror_offset: SearchResult[int] | None = None
    central_record: SearchResult[FoundKafkaRecord] | None = None
    staging_offset: SearchResult[int] | None = None
    staged_row: SearchResult[FoundStagedRow] | None = None
    bucket_record: SearchResult[FoundBucketRecord] | None = None
    oldest_open_hour: SearchResult[OldestOpenHour] | None = None

    @property
    def event(self) -> Event | None:
        """Return the event's fields from the last pipeline stage that has it; None if none has."""
        given = (
            step.value.event
            for step in (self.bucket_record, self.central_record, self.edge_record)
            if step is not None and step.value is not None
        )
        return next(given, None)
