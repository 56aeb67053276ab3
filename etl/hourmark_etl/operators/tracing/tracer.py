"""The steps of a trace: from an id, a record or a position to everything that is known about it.

Each step uses the results of others and is skipped if its input is unknown. If a server does not
respond, only its own step fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final, Protocol

from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import events_topic
from hourmark.records import dead_letters
from hourmark.records.audit import AuditRecord
from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark_etl.model import ReportedSource
from hourmark_etl.operators.tracing.kafka_search import parse_events_topic
from hourmark_etl.operators.tracing.query import (
    EventQuery,
    FilePositionQuery,
    KafkaRecordQuery,
    TraceQuery,
)
from hourmark_etl.operators.tracing.results import (
    ByEventId,
    ByFilePosition,
    ByRangePosition,
    ClusterRole,
    FoundAuditRecord,
    FoundBucketRecord,
    FoundKafkaRecord,
    FoundStagedRow,
    OldestOpenHour,
    SearchCriterion,
    SearchResult,
    TraceResults,
    found_value,
)

# An event's time is at most 15 minutes after its observation; clocks differ by at most five.
_EARLY_MS: Final = 1_200_000
_LATE_MS: Final = 8 * 86_400_000  # its record is usually written within the allowed lateness


class KafkaSearchPort(Protocol):
    """Interface of the Kafka searches that a trace needs.

    `KafkaSearch` implements it and documents the methods; tests may use another implementation.
    """

    @property
    def alias(self) -> str | None: ...
    def topic_name(self, cluster: ClusterRole, event_type: str) -> str: ...
    def find_audit_record_of_line(
        self, place: FilePositionQuery, from_ms: int, to_ms: int
    ) -> SearchResult[FoundAuditRecord]: ...
    def find_audit_record_of_range(
        self, range_id: RangeId, near_ms: int
    ) -> SearchResult[FoundAuditRecord]: ...
    def read_record(
        self, cluster: ClusterRole, topic: str, partition: int, offset: int
    ) -> SearchResult[FoundKafkaRecord]: ...
    def find_event(
        self,
        cluster: ClusterRole,
        topic: str,
        criterion: ByEventId | ByRangePosition,
        from_ms: int,
        to_ms: int | None,
        partition: int | None = None,
    ) -> SearchResult[FoundKafkaRecord]: ...
    def find_event_near_audit(
        self, topic: str, criterion: ByEventId | ByRangePosition, audit_written_at_ms: int
    ) -> SearchResult[FoundKafkaRecord]: ...
    def find_last_event_before(
        self, topic: str, range_id: RangeId, position: int, audit_written_at_ms: int
    ) -> SearchResult[FoundKafkaRecord]: ...
    def mirror_offset(self, topic: str, partition: int) -> SearchResult[int]: ...


class StorageSearchPort(Protocol):
    """Interface of the searches in the ledger and in storage that a trace needs.

    `StorageSearch` implements it and documents the methods; tests may use another implementation.
    The ledger is the state database of the ETL.
    """

    def tailer_reports(self, host: str) -> SearchResult[tuple[ReportedSource, ...]]: ...
    def oldest_open_hour(self, event_type: str) -> SearchResult[OldestOpenHour]: ...
    def staging_offset(self, central: Partition) -> SearchResult[int]: ...
    def find_staged_row(
        self, event_type: str, hour: Hour, criterion: ByEventId | ByRangePosition
    ) -> SearchResult[FoundStagedRow]: ...
    def find_bucket_record(
        self, event_type: str, hour: Hour, criterion: SearchCriterion
    ) -> SearchResult[FoundBucketRecord]: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SendWindow:
    """Time span in which a traced event was sent to Kafka, as given by the operator.

    Attributes:
        since_ms: Start, Unix milliseconds; 0 if unknown.
        until_ms: End, Unix milliseconds.
    """

    since_ms: int
    until_ms: int


@dataclasses.dataclass(slots=True)
class EventTracer:
    """Searches Kafka, the ledger (the ETL's state database) and storage for one event.

    Attributes:
        kafka: Searches in the Kafka clusters of one site.
        storage: Searches in the ledger and storage.
        bucket_seconds: Length of a bucket in seconds.
        window: Time span in which the event was sent.
    """

    kafka: KafkaSearchPort
    storage: StorageSearchPort
    bucket_seconds: int
    window: SendWindow

    def trace(self, query: TraceQuery) -> TraceResults:
        """Search every pipeline stage for an event.

        Args:
            query: Event id, Kafka record or file position that identifies the event.

        Returns:
            The results of all searches. A result is None if its search was not run, because its
            input is unknown. If the server of a search did not respond, the `error` of its result
            is set.

        Raises:
            UsageError: The topic of a Kafka record does not contain events. The error is also
                raised if closed buckets must be searched for a line and the window has no start;
                set `since_ms`.
        """
        if isinstance(query, EventQuery):
            return self._of_event(query.event_type, query.event_id, self._facts())
        if isinstance(query, KafkaRecordQuery):
            return self._of_record(query)
        return self._of_place(query)

    def _facts(self) -> TraceResults:
        return TraceResults(is_mirrored=self.kafka.alias is not None)

    def _of_record(self, query: KafkaRecordQuery) -> TraceResults:
        meant = parse_events_topic(query.topic, self.kafka.alias)
        if meant is None:
            raise UsageError(
                f"{query.topic} is not a topic of events: their names are {events_topic('TYPE')} "
                "and, on the central cluster, "
                f"{self.kafka.topic_name(ClusterRole.CENTRAL, 'TYPE')}"
            )
        site, event_type = meant
        record = self.kafka.read_record(site, query.topic, query.partition, query.offset)
        results = dataclasses.replace(self._facts(), event_type=event_type)
        results = (
            dataclasses.replace(results, edge_record=record)
            if site is ClusterRole.EDGE
            else dataclasses.replace(results, central_record=record)
        )
        return (
            results
            if record.value is None
            else self._of_event(event_type, record.value.event_id, results)
        )

    def _of_place(self, place: FilePositionQuery) -> TraceResults:
        audit = self.kafka.find_audit_record_of_line(
            place, self.window.since_ms, self.window.until_ms
        )
        results = dataclasses.replace(
            self._facts(),
            audit_record=audit,
            tailer_reports=self.storage.tailer_reports(place.host),
        )
        if audit.value is None:
            return self._in_old_buckets(place, results) if place.event_type is not None else results
        record = audit.value.record
        criterion = ByRangePosition(
            record.range_id, record.file_id, record.generation, place.offset
        )
        for event_type, hour in self._promised(record):
            results = dataclasses.replace(
                results, event_type=None, edge_record=None, staged_row=None, bucket_record=None
            )
            staged = self.storage.find_staged_row(event_type, hour, criterion)
            if staged.value is not None:
                return self._of_event(event_type, staged.value.event_id, results)
            edge = self.kafka.find_event_near_audit(
                events_topic(event_type), criterion, audit.value.at_ms
            )
            if edge.value is not None:
                return self._of_event(
                    event_type, edge.value.event_id, dataclasses.replace(results, edge_record=edge)
                )
            bucket = self.storage.find_bucket_record(event_type, hour, criterion)
            if bucket.value is not None:
                return self._of_event(
                    event_type,
                    bucket.value.event_id,
                    dataclasses.replace(results, bucket_record=bucket),
                )
            results = dataclasses.replace(
                results,
                event_type=event_type,
                edge_record=edge,
                staged_row=staged,
                bucket_record=bucket,
            )
        return self._before(place, audit.value, results)

    def _before(
        self, place: FilePositionQuery, audit: FoundAuditRecord, results: TraceResults
    ) -> TraceResults:
        # The requested position may be inside a record that begins earlier. `results` are the results
        # without that record.
        r = audit.record
        last: tuple[int, str, SearchResult[FoundKafkaRecord]] | None = None
        for event_type, _ in self._promised(r):
            last_event = self.kafka.find_last_event_before(
                events_topic(event_type), r.range_id, place.offset, audit.at_ms
            )
            if last_event.value is not None and (
                last is None or last_event.value.event["position"] > last[0]
            ):
                last = last_event.value.event["position"], event_type, last_event
        if last is None or last[2].value is None:
            return results
        begins_at, event_type, edge = last
        known = dataclasses.replace(
            self._facts(),
            audit_record=results.audit_record,
            tailer_reports=results.tailer_reports,
            begins_at=begins_at,
            edge_record=edge,
        )
        return self._of_event(event_type, last[2].value.event_id, known)

    def _in_old_buckets(self, place: FilePositionQuery, results: TraceResults) -> TraceResults:
        # Buckets are kept longer than audit records. All buckets of the requested hours are read.
        assert place.event_type is not None
        if not self.window.since_ms:
            raise UsageError(
                "--type with a position reads the type's closed buckets; limit their hours with "
                "--since and --until"
            )
        criterion = ByFilePosition(place.host, place.file, place.generation, place.offset)
        hour, last = (
            Hour.containing(ms, self.bucket_seconds)
            for ms in (self.window.since_ms, self.window.until_ms)
        )
        seen = list[SearchResult[FoundBucketRecord]]()
        while hour <= last:
            seen.append(self.storage.find_bucket_record(place.event_type, hour, criterion))
            if (held := seen[-1].value) is not None:
                return self._of_event(place.event_type, held.event_id, results)
            if seen[-1].error is not None:
                break
            hour = hour.next()
        where = (
            f"closed buckets of {place.event_type} from "
            f"{Hour.containing(self.window.since_ms, self.bucket_seconds)} to {last}"
        )
        bucket: SearchResult[FoundBucketRecord] = SearchResult(
            None, where, is_complete=all(s.is_complete for s in seen), error=seen[-1].error
        )
        return dataclasses.replace(results, event_type=place.event_type, bucket_record=bucket)

    def _promised(self, record: AuditRecord) -> Iterator[tuple[str, Hour]]:
        # The types and hours to search; dead letters come last.
        for p in sorted(
            record.promised, key=lambda p: (p.event_type == dead_letters.TYPE, -p.count)
        ):
            yield p.event_type, Hour(p.hour_start_s, self.bucket_seconds)

    def _of_event(self, event_type: str, event_id: EventId, results: TraceResults) -> TraceResults:
        criterion, hour = (
            ByEventId(event_id),
            Hour.containing(event_id.time_ms, self.bucket_seconds),
        )
        # The frontier is read first: an hour that is closed then has its bucket in all later steps.
        results = dataclasses.replace(
            results,
            event_type=event_type,
            event_id=event_id,
            oldest_open_hour=self.storage.oldest_open_hour(event_type),
        )
        staged = self.storage.find_staged_row(event_type, hour, criterion)
        results = dataclasses.replace(
            results,
            staged_row=staged,
            bucket_record=self.storage.find_bucket_record(event_type, hour, criterion),
        )
        results = self._with_edge(self._with_central(results, staged, criterion), criterion)
        if results.is_mirrored and results.central_record is None:
            at_edge = found_value(results.edge_record)
            copied = (
                self._by_time(ClusterRole.CENTRAL, criterion, results)
                if at_edge is None
                else self._copy_of(at_edge, ClusterRole.CENTRAL, event_type, criterion)
            )
            results = dataclasses.replace(results, central_record=copied)
        return self._with_audit(self._with_progress(results))

    def _with_central(
        self, results: TraceResults, staged: SearchResult[FoundStagedRow], criterion: ByEventId
    ) -> TraceResults:
        # The record at the offset from which the row was staged.
        if (
            results.central_record is not None
            or staged.value is None
            or not (results.is_mirrored or results.edge_record is None)
        ):
            return results
        assert results.event_type is not None
        site = ClusterRole.CENTRAL if results.is_mirrored else ClusterRole.EDGE
        record = self.kafka.read_record(
            site,
            self.kafka.topic_name(site, results.event_type),
            staged.value.partition,
            staged.value.offset,
        )
        if (
            record.value is not None and record.value.event_id != criterion.event_id
        ):  # the topic was recreated since
            record = SearchResult(
                None,
                f"{record.searched}, which contains another event, so the topic is not the one "
                "that was staged",
            )
        return (
            dataclasses.replace(results, central_record=record)
            if results.is_mirrored
            else dataclasses.replace(results, edge_record=record)
        )

    def _with_edge(self, results: TraceResults, criterion: ByEventId) -> TraceResults:
        if results.edge_record is not None and results.edge_record.value is not None:
            return results
        assert results.event_type is not None
        if results.central_record is not None and results.central_record.value is not None:
            copied = self._copy_of(
                results.central_record.value, ClusterRole.EDGE, results.event_type, criterion
            )
            return dataclasses.replace(results, edge_record=copied)
        if results.edge_record is not None:
            return results
        return dataclasses.replace(
            results, edge_record=self._by_time(ClusterRole.EDGE, criterion, results)
        )

    def _by_time(
        self, site: ClusterRole, criterion: ByEventId, results: TraceResults
    ) -> SearchResult[FoundKafkaRecord]:
        assert results.event_type is not None
        time_ms = criterion.event_id.time_ms
        from_ms, to_ms = (
            max(time_ms - _EARLY_MS, self.window.since_ms),
            min(time_ms + _LATE_MS, self.window.until_ms),
        )
        return self.kafka.find_event(
            site, self.kafka.topic_name(site, results.event_type), criterion, from_ms, to_ms
        )

    def _copy_of(
        self, record: FoundKafkaRecord, site: ClusterRole, event_type: str, criterion: ByEventId
    ) -> SearchResult[FoundKafkaRecord]:
        # The mirror keeps partition and timestamp. Later records may precede it, because services'
        # clocks differ.
        return self.kafka.find_event(
            site,
            self.kafka.topic_name(site, event_type),
            criterion,
            record.at_ms,
            None,
            record.partition,
        )

    def _with_progress(self, results: TraceResults) -> TraceResults:
        # If the mirror or staging has passed the record by now, the next stage is searched again.
        edge = results.edge_record.value if results.edge_record is not None else None
        if (
            results.is_mirrored
            and edge is not None
            and (results.central_record is None or results.central_record.value is None)
        ):
            mirror = self.kafka.mirror_offset(edge.topic, edge.partition)
            results = dataclasses.replace(results, mirror_offset=mirror)
            if (mirror.value or 0) > edge.offset:
                results = dataclasses.replace(
                    results,
                    central_record=self._copy_of(edge, ClusterRole.CENTRAL, *self._known(results)),
                )
        last = results.central_record if results.is_mirrored else results.edge_record
        if (
            last is None
            or last.value is None
            or (results.staged_row is not None and results.staged_row.value is not None)
        ):
            return results
        staging = self.storage.staging_offset(Partition(last.value.topic, last.value.partition))
        results = dataclasses.replace(results, staging_offset=staging)
        return self._search_again(results) if (staging.value or 0) > last.value.offset else results

    def _search_again(self, results: TraceResults) -> TraceResults:
        if results.bucket_record is not None and results.bucket_record.value is not None:
            return results
        event_type, criterion = self._known(results)
        hour = Hour.containing(criterion.event_id.time_ms, self.bucket_seconds)
        staged = self.storage.find_staged_row(event_type, hour, criterion)
        return dataclasses.replace(
            results,
            staged_row=staged,
            bucket_record=self.storage.find_bucket_record(event_type, hour, criterion),
        )

    def _known(self, results: TraceResults) -> tuple[str, ByEventId]:
        assert results.event_type is not None and results.event_id is not None
        return results.event_type, ByEventId(results.event_id)

    def _with_audit(self, results: TraceResults) -> TraceResults:
        if results.audit_record is not None:
            return results
        for step in (results.edge_record, results.central_record):
            if step is not None and (record := step.value) is not None:
                return dataclasses.replace(
                    results,
                    audit_record=self.kafka.find_audit_record_of_range(
                        record.range_id, record.at_ms
                    ),
                )
        return results
