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
    """The searches in Kafka that a trace uses; implemented by `tracing.topics.Topics`."""

    @property
    def alias(self) -> str | None: ...
    def topic_of(self, site: ClusterRole, event_type: str) -> str: ...
    def audit_of_place(
        self, place: FilePositionQuery, from_ms: int, to_ms: int
    ) -> SearchResult[FoundAuditRecord]: ...
    def audit_of_range(self, range_id: RangeId, near_ms: int) -> SearchResult[FoundAuditRecord]: ...
    def at(
        self, site: ClusterRole, topic: str, partition: int, offset: int
    ) -> SearchResult[FoundKafkaRecord]: ...
    def find(
        self,
        site: ClusterRole,
        topic: str,
        sought: ByEventId | ByRangePosition,
        from_ms: int,
        to_ms: int | None,
        partition: int | None = None,
    ) -> SearchResult[FoundKafkaRecord]: ...
    def of_request(
        self, topic: str, sought: ByEventId | ByRangePosition, audited_ms: int
    ) -> SearchResult[FoundKafkaRecord]: ...
    def last_of_request(
        self, topic: str, range_id: RangeId, position: int, audited_ms: int
    ) -> SearchResult[FoundKafkaRecord]: ...
    def mirrored_to(self, topic: str, partition: int) -> SearchResult[int]: ...


class StorageSearchPort(Protocol):
    """The searches in ledger and storage that a trace uses; implemented by `tracing.kept.Kept`."""

    def reported(self, host: str) -> SearchResult[tuple[ReportedSource, ...]]: ...
    def standing(self, event_type: str) -> SearchResult[OldestOpenHour]: ...
    def staging(self, central: Partition) -> SearchResult[int]: ...
    def staged(
        self, event_type: str, hour: Hour, sought: ByEventId | ByRangePosition
    ) -> SearchResult[FoundStagedRow]: ...
    def bucket(
        self, event_type: str, hour: Hour, sought: SearchCriterion
    ) -> SearchResult[FoundBucketRecord]: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SendWindow:
    """The time span in which the traced object was sent, as far as the operator knows.

    Attributes:
        since_ms: Start, Unix milliseconds; 0 if unknown.
        until_ms: End, Unix milliseconds.
    """

    since_ms: int
    until_ms: int


@dataclasses.dataclass(slots=True)
class EventTracer:
    """A procedure that searches everything that is known about one event.

    Attributes:
        topics: Searches in Kafka.
        kept: Searches in the ledger and storage.
        bucket_seconds: Length of a bucket.
        window: Time span in which the event was sent.
    """

    topics: KafkaSearchPort
    kept: StorageSearchPort
    bucket_seconds: int
    window: SendWindow

    def of(self, question: TraceQuery) -> TraceResults:
        """Trace an event, a record or a line.

        Args:
            question: The object to trace.

        Returns:
            The results of all steps. Steps whose input is unknown are None; a step whose server did
            not respond has `failed` set.

        Raises:
            UsageError: The topic of a record is not a topic of events; or closed buckets must be
                searched for a line, and the window has no start.
        """
        if isinstance(question, EventQuery):
            return self._of_event(question.event_type, question.event_id, self._facts())
        if isinstance(question, KafkaRecordQuery):
            return self._of_record(question)
        return self._of_place(question)

    def _facts(self) -> TraceResults:
        return TraceResults(mirrored=self.topics.alias is not None)

    def _of_record(self, asked: KafkaRecordQuery) -> TraceResults:
        meant = parse_events_topic(asked.topic, self.topics.alias)
        if meant is None:
            raise UsageError(
                f"{asked.topic} is no topic of events: those are called {events_topic('TYPE')}, "
                "and on the central cluster "
                f"{self.topics.topic_of(ClusterRole.CENTRAL, 'TYPE')}"
            )
        site, event_type = meant
        record = self.topics.at(site, asked.topic, asked.partition, asked.offset)
        facts = dataclasses.replace(self._facts(), event_type=event_type)
        facts = (
            dataclasses.replace(facts, edge=record)
            if site is ClusterRole.EDGE
            else dataclasses.replace(facts, central=record)
        )
        return (
            facts
            if record.value is None
            else self._of_event(event_type, record.value.event_id, facts)
        )

    def _of_place(self, place: FilePositionQuery) -> TraceResults:
        audit = self.topics.audit_of_place(place, self.window.since_ms, self.window.until_ms)
        facts = dataclasses.replace(
            self._facts(), acknowledged=audit, reported=self.kept.reported(place.host)
        )
        if audit.value is None:
            return self._in_old_buckets(place, facts) if place.event_type is not None else facts
        record = audit.value.record
        sought = ByRangePosition(record.range_id, record.file_id, record.generation, place.offset)
        for event_type, hour in self._promised(record):
            facts = dataclasses.replace(facts, event_type=None, edge=None, staged=None, bucket=None)
            staged = self.kept.staged(event_type, hour, sought)
            if staged.value is not None:
                return self._of_event(event_type, staged.value.event_id, facts)
            edge = self.topics.of_request(events_topic(event_type), sought, audit.value.at_ms)
            if edge.value is not None:
                return self._of_event(
                    event_type, edge.value.event_id, dataclasses.replace(facts, edge=edge)
                )
            bucket = self.kept.bucket(event_type, hour, sought)
            if bucket.value is not None:
                return self._of_event(
                    event_type, bucket.value.event_id, dataclasses.replace(facts, bucket=bucket)
                )
            facts = dataclasses.replace(
                facts, event_type=event_type, edge=edge, staged=staged, bucket=bucket
            )
        return self._before(place, audit.value, facts)

    def _before(
        self, place: FilePositionQuery, told: FoundAuditRecord, facts: TraceResults
    ) -> TraceResults:
        # The requested position may be inside a record that begins earlier. `facts` are the results
        # without that record.
        r = told.record
        last: tuple[int, str, SearchResult[FoundKafkaRecord]] | None = None
        for event_type, _ in self._promised(r):
            looked = self.topics.last_of_request(
                events_topic(event_type), r.range_id, place.offset, told.at_ms
            )
            if looked.value is not None and (
                last is None or looked.value.event["position"] > last[0]
            ):
                last = looked.value.event["position"], event_type, looked
        if last is None or last[2].value is None:
            return facts
        begins_at, event_type, edge = last
        known = dataclasses.replace(
            self._facts(),
            acknowledged=facts.acknowledged,
            reported=facts.reported,
            begins_at=begins_at,
            edge=edge,
        )
        return self._of_event(event_type, last[2].value.event_id, known)

    def _in_old_buckets(self, place: FilePositionQuery, facts: TraceResults) -> TraceResults:
        # Buckets are kept longer than audit records. All buckets of the requested hours are read.
        assert place.event_type is not None
        if not self.window.since_ms:
            raise UsageError(
                "--type of a place reads the type's closed buckets: name their hours by "
                "--since and --until"
            )
        sought = ByFilePosition(place.host, place.file, place.generation, place.offset)
        hour, last = (
            Hour.containing(ms, self.bucket_seconds)
            for ms in (self.window.since_ms, self.window.until_ms)
        )
        seen = list[SearchResult[FoundBucketRecord]]()
        while hour <= last:
            seen.append(self.kept.bucket(place.event_type, hour, sought))
            if (held := seen[-1].value) is not None:
                return self._of_event(place.event_type, held.event_id, facts)
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
        return dataclasses.replace(facts, event_type=place.event_type, bucket=bucket)

    def _promised(self, record: AuditRecord) -> Iterator[tuple[str, Hour]]:
        # The types and hours to search; dead letters come last.
        for p in sorted(
            record.promised, key=lambda p: (p.event_type == dead_letters.TYPE, -p.count)
        ):
            yield p.event_type, Hour(p.hour_start_s, self.bucket_seconds)

    def _of_event(self, event_type: str, event_id: EventId, facts: TraceResults) -> TraceResults:
        sought, hour = ByEventId(event_id), Hour.containing(event_id.time_ms, self.bucket_seconds)
        # The frontier is read first: an hour that is closed then has its bucket in all later steps.
        facts = dataclasses.replace(
            facts, event_type=event_type, event_id=event_id, standing=self.kept.standing(event_type)
        )
        staged = self.kept.staged(event_type, hour, sought)
        facts = dataclasses.replace(
            facts, staged=staged, bucket=self.kept.bucket(event_type, hour, sought)
        )
        facts = self._with_edge(self._with_central(facts, staged, sought), sought)
        if facts.mirrored and facts.central is None:
            at_edge = found_value(facts.edge)
            copied = (
                self._by_time(ClusterRole.CENTRAL, sought, facts)
                if at_edge is None
                else self._copy_of(at_edge, ClusterRole.CENTRAL, event_type, sought)
            )
            facts = dataclasses.replace(facts, central=copied)
        return self._with_audit(self._with_progress(facts))

    def _with_central(
        self, facts: TraceResults, staged: SearchResult[FoundStagedRow], sought: ByEventId
    ) -> TraceResults:
        # The record at the offset from which the row was staged.
        if (
            facts.central is not None
            or staged.value is None
            or not (facts.mirrored or facts.edge is None)
        ):
            return facts
        assert facts.event_type is not None
        site = ClusterRole.CENTRAL if facts.mirrored else ClusterRole.EDGE
        record = self.topics.at(
            site,
            self.topics.topic_of(site, facts.event_type),
            staged.value.partition,
            staged.value.offset,
        )
        if (
            record.value is not None and record.value.event_id != sought.event_id
        ):  # the topic was recreated since
            record = SearchResult(
                None,
                f"{record.searched}, where another event stands: the topic is not the one "
                "that was staged",
            )
        return (
            dataclasses.replace(facts, central=record)
            if facts.mirrored
            else dataclasses.replace(facts, edge=record)
        )

    def _with_edge(self, facts: TraceResults, sought: ByEventId) -> TraceResults:
        if facts.edge is not None and facts.edge.value is not None:
            return facts
        assert facts.event_type is not None
        if facts.central is not None and facts.central.value is not None:
            copied = self._copy_of(facts.central.value, ClusterRole.EDGE, facts.event_type, sought)
            return dataclasses.replace(facts, edge=copied)
        if facts.edge is not None:
            return facts
        return dataclasses.replace(facts, edge=self._by_time(ClusterRole.EDGE, sought, facts))

    def _by_time(
        self, site: ClusterRole, sought: ByEventId, facts: TraceResults
    ) -> SearchResult[FoundKafkaRecord]:
        assert facts.event_type is not None
        time_ms = sought.event_id.time_ms
        from_ms, to_ms = (
            max(time_ms - _EARLY_MS, self.window.since_ms),
            min(time_ms + _LATE_MS, self.window.until_ms),
        )
        return self.topics.find(
            site, self.topics.topic_of(site, facts.event_type), sought, from_ms, to_ms
        )

    def _copy_of(
        self, record: FoundKafkaRecord, site: ClusterRole, event_type: str, sought: ByEventId
    ) -> SearchResult[FoundKafkaRecord]:
        # The mirror keeps partition and timestamp. Later records may precede it, because services'
        # clocks differ.
        return self.topics.find(
            site,
            self.topics.topic_of(site, event_type),
            sought,
            record.at_ms,
            None,
            record.partition,
        )

    def _with_progress(self, facts: TraceResults) -> TraceResults:
        # If the mirror or staging has passed the record by now, the next stage is searched again.
        edge = facts.edge.value if facts.edge is not None else None
        if (
            facts.mirrored
            and edge is not None
            and (facts.central is None or facts.central.value is None)
        ):
            mirror = self.topics.mirrored_to(edge.topic, edge.partition)
            facts = dataclasses.replace(facts, mirror=mirror)
            if (mirror.value or 0) > edge.offset:
                facts = dataclasses.replace(
                    facts, central=self._copy_of(edge, ClusterRole.CENTRAL, *self._known(facts))
                )
        last = facts.central if facts.mirrored else facts.edge
        if (
            last is None
            or last.value is None
            or (facts.staged is not None and facts.staged.value is not None)
        ):
            return facts
        staging = self.kept.staging(Partition(last.value.topic, last.value.partition))
        facts = dataclasses.replace(facts, staging=staging)
        return self._asked_again(facts) if (staging.value or 0) > last.value.offset else facts

    def _asked_again(self, facts: TraceResults) -> TraceResults:
        if facts.bucket is not None and facts.bucket.value is not None:
            return facts
        event_type, sought = self._known(facts)
        hour = Hour.containing(sought.event_id.time_ms, self.bucket_seconds)
        staged = self.kept.staged(event_type, hour, sought)
        return dataclasses.replace(
            facts, staged=staged, bucket=self.kept.bucket(event_type, hour, sought)
        )

    def _known(self, facts: TraceResults) -> tuple[str, ByEventId]:
        assert facts.event_type is not None and facts.event_id is not None
        return facts.event_type, ByEventId(facts.event_id)

    def _with_audit(self, facts: TraceResults) -> TraceResults:
        if facts.acknowledged is not None:
            return facts
        for step in (facts.edge, facts.central):
            if step is not None and (record := step.value) is not None:
                return dataclasses.replace(
                    facts, acknowledged=self.topics.audit_of_range(record.range_id, record.at_ms)
                )
        return facts
