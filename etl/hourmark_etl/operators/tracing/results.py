"""The results of a trace, step by step, with the places that were searched.

An object that was not found may still exist in places that were not searched.
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
    """Result of one search for a traced event in Kafka, the ledger or storage.

    A trace consists of several searches. The ledger is the state database of the ETL.

    Attributes:
        value: Object that was found; None if the searched places do not contain it.
        searched: Human-readable description of the searched places.
        is_complete: Whether every place that may contain the object was searched, so that a missing
            value proves that the object does not exist.
        error: Human-readable error message if the search failed, for example because a server did
            not respond; otherwise None.
    """

    value: T | None
    searched: str
    is_complete: bool = False
    error: str | None = None


def found_value(step: SearchResult[T] | None) -> T | None:
    """Return the object that a search found.

    Args:
        step: Result of the search; None if the search was not run.

    Returns:
        The `value` of the result; None if the search was not run or found nothing.
    """
    return None if step is None else step.value


def run_search(searched: str, search: Callable[[], SearchResult[T]]) -> SearchResult[T]:
    """Call a search function, and convert its exceptions to a failed result.

    The caller can then continue with other searches if one server does not respond.

    Args:
        searched: Human-readable description of the places to search. It becomes part of a failed
            result.
        search: Function that runs the search.

    Returns:
        The result of `search`. If `search` raised a `HourmarkError` other than `UsageError`, a
        result whose `value` is None and whose `error` is the message.

    Raises:
        UsageError: The search function raised it, because the request is invalid.
    """
    try:
        return search()
    except UsageError:
        raise
    except HourmarkError as error:
        return SearchResult(None, searched, error=str(error))


class ClusterRole(enum.Enum):
    """Role of a Kafka cluster in the pipeline.

    Events are produced to the `EDGE` cluster of a site and mirrored to the `CENTRAL` cluster.
    Without a mirror, one cluster has both roles.
    """

    EDGE = "edge"
    CENTRAL = "central"


@dataclasses.dataclass(frozen=True, slots=True)
class ByEventId:
    """Search criterion that matches the event with a given id.

    Attributes:
        event_id: Id of the event.
    """

    event_id: EventId


@dataclasses.dataclass(frozen=True, slots=True)
class ByRangePosition:
    """Search criterion that matches the event at a byte offset of a delivered byte range.

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
    """Search criterion that matches the event at a byte offset of a log file.

    It can be used only for closed buckets.

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
    """Kafka record that confirms the delivery of one byte range of a log file.

    Attributes:
        record: Decoded audit record.
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
    """Kafka record of a traced event.

    Attributes:
        topic: Topic of the record.
        partition: Partition of the record.
        offset: Offset of the record.
        at_ms: Time at which the delivery service wrote the record, Unix milliseconds.
        event_id: Id of the event.
        range_id: Id of the byte range that contains the event.
        event: Values by field name. Contains the fields that all event types have; for a dead
            letter, all fields.
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
    """Row of a traced event in a staged file, which holds events read from Kafka.

    Attributes:
        path: Path of the file, relative to the storage root.
        event_id: Id of the event.
        range_id: Id of the byte range that contains the event.
        partition: Partition on the central cluster from which the event was staged.
        offset: Offset in this partition.
        hour: Hour of the event's timestamp.
        listed: Hour of the bucket that will contain the event; None if the event is not assigned to
            a bucket yet.
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
    """Record of a traced event in a closed hourly bucket.

    Attributes:
        hour: Hour of the bucket.
        file: Path of the file, relative to the storage root.
        row: Zero-based index of the record in the file.
        event: The decoded event.
        grade: Grade of the bucket, such as `proved`.
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
        """Return the id of the event.

        It is taken from the field `event_id` of the decoded event.
        """
        return EventId(self.event["event_id"])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OldestOpenHour:
    """Oldest hour of an event type whose bucket is not closed yet.

    Attributes:
        hour: Hour of the bucket.
        state: Progress of closing the bucket: open (waiting for records), frozen (being compared
            with the audit records), sealed (being written) or damaged.
    """

    hour: Hour
    state: HourState


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceResults:
    """Results of all searches that were run to trace one event.

    A result is None if its search was not run because its input is unknown.

    Attributes:
        is_mirrored: Whether there is a mirror between an edge cluster and the central cluster.
        begins_at: Byte offset of the start of the event that contains the requested position; None
            if this start is unknown or is the requested position itself.
        tailer_reports: Latest reports of the tailer on the requested host, one for each log source.
        event_type: Name of the event type; None if unknown.
        event_id: Id of the event; None if unknown.
        audit_record: Audit record that confirms the delivery of the event's byte range.
        edge_record: Record of the event on the edge cluster.
        mirror_offset: Next offset that the mirror will copy in the event's edge topic-partition.
        central_record: Record of the event on the central cluster.
        staging_offset: Next offset that the ETL will read in the event's central topic-partition.
        staged_row: Row of the event in a staged file, which holds events read from Kafka.
        bucket_record: Record of the event in a closed bucket.
        oldest_open_hour: Oldest hour of the event type whose bucket is not closed.
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
        """Return the decoded fields of the event, by field name.

        The record in the closed bucket is preferred, then the record on the central cluster, then
        the record on the edge cluster.

        Returns:
            The fields; None if none of these records was found.
        """
        given = (
            step.value.event
            for step in (self.bucket_record, self.central_record, self.edge_record)
            if step is not None and step.value is not None
        )
        return next(given, None)
