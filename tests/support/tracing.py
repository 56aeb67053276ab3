"""Servers for traces, in memory: what each holds of one event, and which of them do not answer."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
from typing import Any, TypeVar

import fastavro
from tests.support.records import HOUR, audit_record

from hourmark.avro.framing import event_schema
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import central_topic, events_topic
from hourmark.records.audit import Promise
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark_etl.model import HourState, ReportedSource
from hourmark_etl.operators.tracing.query import FilePositionQuery
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
)

TYPE = "click"
POSITION = 5
RANGE = RangeId(b"12345678")
EVENT = LineIds("a" * 32, "b" * 32, 0).make(HOUR.start_s * 1000 + 1, POSITION, b"line")
AT_MS = HOUR.start_s * 1000 + 2000
_T = TypeVar("_T")


def event(event_id: EventId = EVENT, **more: Any) -> dict[str, Any]:
    """Its envelope."""
    time = dt.datetime.fromtimestamp(event_id.time_ms / 1000, dt.UTC)
    file = {"id": "b" * 32, "generation": 0}
    return {
        "event_id": event_id,
        "event_time": time,
        "host": "web",
        "source": "/log",
        "file": file,
        "position": POSITION,
        **more,
    }


def datum(event: dict[str, Any]) -> bytes:
    """As Avro, of a type without fields of its own."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(event_schema(TYPE, [])), event)
    return buffer.getvalue()


def record(offset: int, topic: str = events_topic(TYPE), **more: Any) -> FoundKafkaRecord:
    """Of the event."""
    return FoundKafkaRecord(
        topic=topic,
        partition=0,
        offset=offset,
        at_ms=AT_MS,
        event_id=EVENT,
        range_id=RANGE,
        event=event(**more),
    )


@dataclasses.dataclass
class Servers:
    """Both `walk.Topics` and `walk.Kept`. `away`: names of those that do not answer; `partly`: of
    those that lost some.
    """

    alias: str | None = "edge"
    event_type: str = TYPE
    audit: FoundAuditRecord | None = None
    edge: FoundKafkaRecord | None = None
    central: FoundKafkaRecord | None = None
    mirror: int = 0
    next_staged: int = 0
    row: FoundStagedRow | None = None
    in_bucket: FoundBucketRecord | None = None
    frontier: Hour = HOUR
    reports: tuple[ReportedSource, ...] = ()
    away: frozenset[str] = frozenset()
    partly: frozenset[str] = frozenset()
    asked: list[str] = dataclasses.field(default_factory=list)

    def acknowledge(self, blanks: int | None = 0) -> None:
        """By an audit record that promises the event, and a dead letter beside it."""
        promised = (
            Promise(self.event_type, HOUR.start_s, 1, EVENT.low64),
            Promise("view", HOUR.start_s, 1, 1),
        )
        told = audit_record(range_id=RANGE, promised=promised, blanks=blanks)
        self.audit = FoundAuditRecord(
            record=told, at_ms=AT_MS + 1, topic="hourmark.audit", partition=0, offset=3
        )

    def write(self, offset: int = 7, **more: Any) -> None:
        """To the edge."""
        self.edge = record(offset, events_topic(self.event_type), **more)

    def copy(self, offset: int = 9) -> None:
        """To the central cluster."""
        assert self.edge is not None
        topic = central_topic(self.edge.topic, self.alias)
        self.central = dataclasses.replace(self.edge, topic=topic, offset=offset)
        self.mirror = self.edge.offset + 1

    def stage(self, listed: Hour | None = None) -> None:
        """The copy."""
        last = self.central or self.edge
        assert last is not None
        self.next_staged = last.offset + 1
        self.row = FoundStagedRow(
            path="_staging/one.parquet",
            event_id=EVENT,
            range_id=RANGE,
            partition=0,
            offset=last.offset,
            hour=HOUR,
            listed=listed,
        )

    def close(self, bucket: Hour = HOUR) -> None:
        """The bucket that has it."""
        self.frontier = bucket.next()
        path = f"{bucket.bucket_path(self.event_type)}/part-00000.avro"
        self.in_bucket = FoundBucketRecord(
            hour=bucket, file=path, row=4, event=event(), grade="proved", closed_at_ms=AT_MS + 9
        )

    def topic_name(self, cluster: ClusterRole, event_type: str) -> str:
        topic = events_topic(event_type)
        return topic if cluster is ClusterRole.EDGE else central_topic(topic, self.alias)

    def find_audit_record_of_line(
        self, place: FilePositionQuery, from_ms: int, to_ms: int
    ) -> SearchResult[FoundAuditRecord]:
        return self._looked(
            "audit",
            self.audit
            if self.audit is not None and place.matches_range(self.audit.record)
            else None,
        )

    def find_audit_record_of_range(
        self, range_id: RangeId, near_ms: int
    ) -> SearchResult[FoundAuditRecord]:
        assert near_ms == AT_MS
        return self._looked(
            "audit",
            self.audit
            if self.audit is not None and self.audit.record.range_id == range_id
            else None,
        )

    def read_record(
        self, cluster: ClusterRole, topic: str, partition: int, offset: int
    ) -> SearchResult[FoundKafkaRecord]:
        held = self._held(cluster, topic)
        return self._looked(
            cluster.value, held if held is not None and held.offset == offset else None
        )

    def find_event(
        self,
        cluster: ClusterRole,
        topic: str,
        criterion: ByEventId | ByRangePosition,
        from_ms: int,
        to_ms: int | None,
        partition: int | None = None,
    ) -> SearchResult[FoundKafkaRecord]:
        held = self._held(cluster, topic)
        return self._looked(
            cluster.value,
            held
            if held is not None
            and from_ms <= held.at_ms <= (to_ms or held.at_ms)
            and _is(criterion, held.event_id)
            else None,
        )

    def find_event_near_audit(
        self, topic: str, criterion: ByEventId | ByRangePosition, audit_written_at_ms: int
    ) -> SearchResult[FoundKafkaRecord]:
        held = self._held(ClusterRole.EDGE, topic)
        return self._looked("edge", held if _is(criterion) else None)

    def find_last_event_before(
        self, topic: str, range_id: RangeId, position: int, audit_written_at_ms: int
    ) -> SearchResult[FoundKafkaRecord]:
        held = self._held(ClusterRole.EDGE, topic)
        return self._looked(
            "edge", held if held is not None and held.event["position"] <= position else None
        )

    def mirror_offset(self, topic: str, partition: int) -> SearchResult[int]:
        return self._looked("mirror", self.mirror)

    def tailer_reports(self, host: str) -> SearchResult[tuple[ReportedSource, ...]]:
        return self._looked(
            "ledger", tuple(r for r in self.reports if host in (r.host_id, r.host_name)) or None
        )

    def oldest_open_hour(self, event_type: str) -> SearchResult[OldestOpenHour]:
        return self._looked(
            "ledger",
            OldestOpenHour(hour=self.frontier, state=HourState.OPEN)
            if event_type == self.event_type
            else None,
        )

    def staging_offset(self, central: Partition) -> SearchResult[int]:
        return self._looked("ledger", self.next_staged)

    def find_staged_row(
        self, event_type: str, hour: Hour, criterion: ByEventId | ByRangePosition
    ) -> SearchResult[FoundStagedRow]:
        return self._looked(
            "ledger",
            self.row if (event_type, hour) == (self.event_type, HOUR) and _is(criterion) else None,
        )

    def find_bucket_record(
        self, event_type: str, hour: Hour, criterion: SearchCriterion
    ) -> SearchResult[FoundBucketRecord]:
        held = (
            self.in_bucket
            if (event_type, hour) == (self.event_type, HOUR) and _is(criterion)
            else None
        )
        return self._looked("buckets", held)

    def _held(self, site: ClusterRole, topic: str) -> FoundKafkaRecord | None:
        held = self.edge if site is ClusterRole.EDGE else self.central
        return held if held is not None and held.topic == topic else None

    def _looked(self, server: str, held: _T | None) -> SearchResult[_T]:
        self.asked.append(server)
        if server in self.away:
            return SearchResult(None, server, error=f"{server} did not answer")
        return SearchResult(held, server, is_complete=server not in self.partly)


def _is(sought: SearchCriterion, held: EventId = EVENT) -> bool:
    """Whether this event is meant."""
    if isinstance(sought, ByEventId):
        return sought.event_id == held
    if isinstance(sought, ByFilePosition):
        return sought == ByFilePosition("web", "/log", None, POSITION)
    assert isinstance(sought, ByRangePosition)
    return sought == ByRangePosition(RANGE, "b" * 32, 0, POSITION)
