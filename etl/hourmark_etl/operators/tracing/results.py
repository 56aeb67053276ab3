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
    """The result of one step of a trace.

    Attributes:
        value: What was found; None if nothing was.
        searched: Readable description of the place that was searched.
        is_complete: Whether every place that may contain it was searched, so that a missing result proves
            that it does not exist.
        error: Readable error if the search failed, for example because a server did not respond;
            otherwise None.
    """

    value: T | None
    searched: str
    is_complete: bool = False
    error: str | None = None


def found_value(step: SearchResult[T] | None) -> T | None:
    """Return what a step of a trace found; None if it found nothing or was not taken."""
    return None if step is None else step.value


def run_search(where: str, ask: Callable[[], SearchResult[T]]) -> SearchResult[T]:
    """Run one step of a trace and convert errors to a failed result.

    Other steps can then continue.

    Args:
        where: Readable description of the place to search, for a failed result.
        ask: The step.

    Returns:
        The result of `ask`; if it failed, a result whose `found` is None and whose `failed` is the
        error message.

    Raises:
        UsageError: The step raised it. All other subclasses of `HourmarkError` are converted.
    """
    try:
        return ask()
    except UsageError:
        raise
    except HourmarkError as error:
        return SearchResult(None, where, error=str(error))


class ClusterRole(enum.Enum):
    """The role of a Kafka cluster: `EDGE` or `CENTRAL`. One cluster may have both roles."""

    EDGE = "edge"
    CENTRAL = "central"


@dataclasses.dataclass(frozen=True, slots=True)
class ByEventId:
    """A search criterion: the event with this id.

    Attributes:
        event_id: Id of the event.
    """

    event_id: EventId


@dataclasses.dataclass(frozen=True, slots=True)
class ByRangePosition:
    """A search criterion: the event that begins at a position of a byte range or file.

    Attributes:
        range_id: Id of the byte range; used in Kafka and in staged files.
        file_id: Id of the file; used in buckets, which do not contain range ids.
        generation: Number of earlier truncations of the file; used with `file_id`.
        position: Byte offset in the file.
    """

    range_id: RangeId
    file_id: str
    generation: int
    position: int


@dataclasses.dataclass(frozen=True, slots=True)
class ByFilePosition:
    """A search criterion: the event in a bucket that begins at a position of a file.

    Attributes:
        host: Name of the host. A host id matches every host, because buckets do not contain host
            ids.
        file: Id of the file, or its path when it was read.
        generation: Number of earlier truncations of the file; None matches any.
        position: Byte offset in the file.
    """

    host: str
    file: str
    generation: int | None
    position: int


SearchCriterion = ByEventId | ByRangePosition | ByFilePosition


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundAuditRecord:
    """The audit record of a byte range, which is written just before the range is acknowledged.

    Attributes:
        record: The audit record.
        at_ms: Time at which the record was written, Unix milliseconds.
        topic: Topic of the record.
        partition: Partition of the record.
        offset: Offset of the record.
        other_files: Number of other files of the same path that also have the requested position,
            as far as records were read.
    """

    record: AuditRecord
    at_ms: int
    topic: str
    partition: int
    offset: int
    other_files: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundKafkaRecord:
    """An event in Kafka.

    Attributes:
        topic: Topic of the record.
        partition: Partition of the record.
        offset: Offset of the record.
        at_ms: Time at which the delivery service wrote it, Unix milliseconds.
        event_id: Id of the event.
        range_id: Id of the byte range that contains the event.
        event: Envelope fields of the event by name; for a dead letter, all fields.
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
    """An event in a closed bucket.

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
    """All results of a trace. A step that is None was not taken, because its input is unknown.

    Attributes:
        mirrored: Whether there is a mirror between an edge cluster and the central cluster.
        begins_at: Start of the record that contains the requested position, if no record begins at
            the position itself; otherwise None.
        reported: The latest reports of the tailer on the requested host, one per source.
        event_type: Type of the event; None if unknown.
        event_id: Id of the event; None if unknown.
        acknowledged: The audit record of the event's byte range.
        edge: The event on the edge cluster.
        mirror: Next offset of the event's edge partition that the mirror will copy.
        central: The event on the central cluster.
        staging: Next offset of the event's central partition that will be staged.
        staged: The event in a staged file.
        bucket: The event in a closed bucket.
        standing: The oldest hour of the event's type that is not closed.
    """

    mirrored: bool
    begins_at: int | None = None
    reported: SearchResult[tuple[ReportedSource, ...]] | None = None
    event_type: str | None = None
    event_id: EventId | None = None
    acknowledged: SearchResult[FoundAuditRecord] | None = None
    edge: SearchResult[FoundKafkaRecord] | None = None
    mirror: SearchResult[int] | None = None
    central: SearchResult[FoundKafkaRecord] | None = None
    staging: SearchResult[int] | None = None
    staged: SearchResult[FoundStagedRow] | None = None
    bucket: SearchResult[FoundBucketRecord] | None = None
    standing: SearchResult[OldestOpenHour] | None = None

    @property
    def event(self) -> Event | None:
        """Return the event's fields from the last step that found it; None if no step did."""
        given = (
            step.value.event
            for step in (self.bucket, self.central, self.edge)
            if step is not None and step.value is not None
        )
        return next(given, None)
