"""Records that are as usual but for what a test changes: of the ledger, of the control topics, of
buckets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import pyarrow as pa

from hourmark.records.audit import AuditRecord
from hourmark.records.host_reports import HostReport, SourceReport
from hourmark.records.hours import Hour
from hourmark.records.manifest import BucketEvidence, Grade, Manifest, ParquetFile
from hourmark.records.ranges import ByteRange, RangeId
from hourmark.rules.event_types import EventType, Source
from hourmark_etl.ledger.overrides import Blocker
from hourmark_etl.model import (
    EVENTS,
    FIRST_SITE,
    AuditGroup,
    AuditOffsets,
    ClosingPhase,
    Frontier,
    HourState,
    OffsetSpan,
    ReportedSource,
    Seal,
    StagedBatch,
    StagedFile,
    StagedGroup,
    StagingPosition,
)
from hourmark_etl.staging.pieces import StagePlan

HOUR: Final = Hour(1_800_000_000, 3600)
END: Final = HOUR.end_ms
DEADLINE_S: Final = 7200
CLICK: Final = EventType(name="click", fields=[{"name": "n", "type": "long"}])
APP: Final = Source(name="app", types=["click"])
WEB: Final = Source(name="web", types=["click"])
TOPIC: Final = "events.click"
TOPICS: Final = {"click": [TOPIC]}
Row = tuple[
    bytes, bytes, str, int, int
]  # as Spark gives a record: key, value, topic, partition, offset
_Kind = TypeVar("_Kind")


def _made(kind: type[_Kind], changes: dict[str, Any], /, **usual: Any) -> _Kind:
    return kind(**usual | changes)


def _with_offsets(changes: dict[str, Any]) -> dict[str, Any]:
    """A number is an offset of the first site."""
    names = ("settled_next", "audit_next")
    return {
        name: AuditOffsets.from_offsets(of) if name in names and isinstance(of, int) else of
        for name, of in changes.items()
    }


def frontier(event_type: str = "click", hour: Hour = HOUR, **changes: Any) -> Frontier:
    """Of a type that source `app` carries, open."""
    return _made(
        Frontier,
        _with_offsets(changes),
        event_type=event_type,
        hour=hour,
        first_hour=HOUR,
        state=HourState.OPEN,
        sources=frozenset({"app"}),
        settled_next=AuditOffsets.from_offsets(0),
        seal=None,
        alarm=(),
    )


def seal(**changes: Any) -> Seal:
    """As proved."""
    return _made(
        Seal,
        _with_offsets(changes),
        grade="proved",
        method="join",
        cut_at_ms=1,
        audit_next=AuditOffsets.from_offsets(0),
        audit_records=1,
        promised=1,
        unaudited=0,
        waived=(),
        offsets=(),
    )


def evidence(**changes: Any) -> BucketEvidence:
    """Of one audit record that promises one event."""
    return _made(
        BucketEvidence,
        changes,
        method="join",
        cut_at_ms=1,
        audit_records=1,
        promised=1,
        audit_next={"0": 0},
    )


PARQUET_FILE = ParquetFile(
    name="_parquet/part-00000.parquet",
    rows_of="part-00000.avro",
    records=1,
    bytes=9,
    blake2b="00" * 16,
    origin_hour=str(HOUR),
)


def manifest(hour: Hour = HOUR, **changes: Any) -> Manifest:
    """Of an empty bucket of click."""
    return _made(
        Manifest,
        changes,
        type="click",
        hour=str(hour),
        bucket_seconds=3600,
        grade=Grade.PROVED,
        evidence=evidence(),
        files=[],
        events=0,
        late={},
        duplicates_removed=0,
        unaudited=0,
        id_sum="0" * 16,
        offsets=[],
        ledger="l",
        ledger_commit=1,
        attempt="a",
        closed_at_ms=5,
        software="test",
    )


def tailer(**changes: Any) -> ReportedSource:
    """Of host `web` and source `app`, just past the hour's end."""
    return _made(
        ReportedSource,
        changes,
        host_id="t" * 32,
        source="app",
        host_name="web",
        kind="tailer",
        incarnation="one",
        sequence=0,
        received_at_ms=END,
        caught_up_at_ms=END + 1,
        pending_bytes=0,
        lost_bytes=0,
        goodbye=False,
        heard_at_ms=END,
    )


def service(**changes: Any) -> ReportedSource:
    """The same, of a delivery service."""
    return tailer(
        **{"host_id": "s" * 32, "source": "api", "host_name": "svc", "kind": "service"} | changes
    )


def host_report(at_ms: int = 5, **changes: Any) -> HostReport:
    """Of a tailer that has caught up by now."""
    return _made(
        HostReport,
        changes,
        host_id="a" * 32,
        host_name="web",
        kind="tailer",
        incarnation="one",
        sequence=0,
        received_at_ms=at_ms,
        goodbye=False,
        sources=(SourceReport("app", at_ms, 0, 0),),
    )


def byte_range(**changes: Any) -> ByteRange:
    """Of two bytes."""
    return _made(
        ByteRange,
        changes,
        host_id="a" * 32,
        file_id="b" * 32,
        generation=0,
        start=0,
        end=2,
        observed_at_ms=7,
        rules="1-a",
        zone="UTC",
        source="app",
        path="/log",
        host_name="h",
    )


def audit_record(**changes: Any) -> AuditRecord:
    """Of a range that promises nothing."""
    return _made(
        AuditRecord,
        changes,
        range_id=RangeId(b"12345678"),
        kind="range",
        host_id="a" * 32,
        host_name="web",
        file_id="b" * 32,
        generation=0,
        start=0,
        end=10,
        observed_at_ms=5,
        rules="1-a",
        source="app",
        path="/log",
        lines=3,
        promised=(),
    )


def position(next_offset: int = 0, topic: str = TOPIC, **changes: Any) -> StagingPosition:
    """In the one partition of a topic."""
    return _made(
        StagingPosition,
        changes,
        cluster_id="cluster",
        topic_id=f"id of {topic}",
        topic=topic,
        partition=0,
        next_offset=next_offset,
    )


def span(start: int, end: int, topic: str = TOPIC, **changes: Any) -> OffsetSpan:
    """Of the one partition of a topic."""
    return _made(
        OffsetSpan,
        changes,
        topic=topic,
        topic_id=f"id of {topic}",
        partition=0,
        start=start,
        end=end,
    )


def group(path: str = "f", hour: Hour = HOUR, rows: int = 1, **changes: Any) -> StagedGroup:
    """Of click, with datums of ten bytes."""
    return _made(
        StagedGroup,
        changes,
        path=path,
        event_type="click",
        hour_s=hour.start_s,
        rows=rows,
        datum_bytes=10 * rows,
        low64_sum=0,
        schema_ids=(1,),
        first_row=0,
        first_id=bytes(16),
        last_id=bytes(16),
    )


def audit_group(path: str = "a", hour_s: int = HOUR.start_s, **changes: Any) -> AuditGroup:
    """Of one audit record."""
    return _made(
        AuditGroup,
        changes,
        path=path,
        event_type="click",
        hour_s=hour_s,
        rows=1,
        first_offset=0,
        last_offset=0,
        promised=1,
        low64_sum=0,
    )


def staged_file(
    path: str = "f", kind: str = EVENTS, rows: int = 1, spans: tuple[OffsetSpan, ...] = ()
) -> StagedFile:
    """Of audit records nothing is known but their number."""
    return StagedFile(path=path, kind=kind, rows=rows, spans=spans)


def staged_batch(**changes: Any) -> StagedBatch:
    """Of nothing."""
    parts = ("starts", "ends", "files", "groups", "audit_groups", "reports")
    return _made(StagedBatch, changes, folder="_staging/one", **dict.fromkeys(parts, ()))


def blocker(phase: ClosingPhase, *what: str, hour: Hour = HOUR, since_ms: int = 1) -> Blocker:
    """What click's hour waits for."""
    return Blocker(event_type="click", hour=hour, phase=phase, what=what, since_ms=since_ms)


def stage_plan(folder: str = "_staging/one", **changes: Any) -> StagePlan:
    """Of buckets of an hour."""
    return _made(
        StagePlan,
        changes,
        folder=folder,
        bucket_seconds=3600,
        types={TOPIC: "click"},
        audits={"hourmark.audit": FIRST_SITE},
        hosts={"hourmark.hosts"},
    )


def kafka_table(rows: Iterable[Row]) -> pa.Table:
    """What a task of staging is given."""
    kinds = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64())
    columns = [*zip(*rows, strict=True)] or [()] * len(kinds)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, ["key", "value", "topic", "partition", "offset"])


def rewritten(marker: bytes, **changes: object) -> bytes:
    """A marker that says otherwise, with the digest of that: what somebody may write, and no damage
    makes.
    """
    found = Manifest.decode(marker)
    plain = found.software.partition(" blake2b=")[0]
    return found.model_copy(update={"software": plain, **changes}).with_own_digest().encode()
