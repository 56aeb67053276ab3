"""Builds closed buckets as a closer would, without one: tests change what goes in, or what stands
there afterwards.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections import Counter
from typing import Any

import fastavro
from tests.support.containers import append_all
from tests.support.records import evidence, manifest

from hourmark.avro.framing import event_schema, fingerprint
from hourmark.config.groups import AvroCodec
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, BucketEvidence, BucketFile, Manifest, PreviousMarker
from hourmark_etl.buckets.avro_container import ContainerWriter
from hourmark_etl.storage import Storage

TYPE = "end-song"
HOUR = Hour.parse("2026-11-21T05")
EARLIER = Hour.parse("2026-11-21T04")
LATER = Hour.parse("2026-11-21T06")
SCHEMA = event_schema(TYPE, [{"name": "line", "type": "bytes"}, {"name": "ms", "type": "double"}])

Datum = tuple[EventId, bytes]


def make_event(hour: Hour, number: int, line: bytes = b"a line") -> Datum:
    time_ms = hour.start_s * 1000 + number
    event_id = LineIds("host-1", "file-1", 0).make(time_ms, number, line)
    event = {
        "event_id": bytes(event_id),
        "event_time": time_ms,
        "host": "host-1",
        "source": "/var/log/app.log",
        "file": {"id": "file-1", "generation": 0},
        "position": number,
        "line": line,
        "ms": 1.5,
    }
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(SCHEMA), event)
    return event_id, file.getvalue()


@dataclasses.dataclass
class Plan:
    """What goes into a bucket; a test changes it before or after `close`."""

    storage: Storage
    hour: Hour
    files: dict[str, list[Datum]]
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the manifest
    codec: AvroCodec = "deflate"

    def close(self) -> Manifest:
        folder = self.hour.bucket_path(TYPE)
        listed = [
            self._write(f"{folder}/{name}", name, datums) for name, datums in self.files.items()
        ]
        ids = [event_id for datums in self.files.values() for event_id, _ in datums]
        behind = [
            event_id
            for name, datums in self.files.items()
            if name.startswith("late-")
            for event_id, _ in datums
        ]
        late = dict(Counter(str(Hour.containing(event_id.time_ms)) for event_id in behind))
        told = manifest(
            self.hour,
            type=TYPE,
            previous=self._previous(),
            evidence=self.evidence(),
            codec="deflate" if self.codec == "deflate" and listed else None,
            files=listed,
            events=len(ids),
            late=late,
            duplicates_removed=2,
            id_sum=f"{sum(event_id.low64 for event_id in ids) % (1 << 64):016x}",
            ledger="3f0c8c1e",
            ledger_commit=7,
            attempt="attempt-1",
            closed_at_ms=self.hour.end_ms,
            software="hourmark test",
        ).model_copy(update=self.changes)
        self.storage.write_new(f"{folder}/{MARKER}", told.encode())
        return told

    def evidence(self) -> BucketEvidence:
        events = sum(map(len, self.files.values()))
        return evidence(cut_at_ms=self.hour.end_ms, promised=events, audit_next={"0": 1})

    def _previous(self) -> PreviousMarker | None:
        before = self.hour.previous()
        path = f"{before.bucket_path(TYPE)}/{MARKER}"
        return (
            PreviousMarker.from_marker(str(before), self.storage.read(path))
            if self.storage.exists(path)
            else None
        )

    def _write(self, path: str, name: str, datums: list[Datum]) -> BucketFile:
        with self.storage.create(path) as file:
            writer = ContainerWriter(file, json.dumps(SCHEMA), codec=self.codec)
            append_all(writer, (datum for _, datum in datums))
            stats = writer.close()
        return BucketFile(
            name=name,
            records=stats.records,
            bytes=stats.bytes,
            blake2b=stats.blake2b,
            schema_id=1,
            schema_fingerprint=fingerprint(SCHEMA),
        )


def usual_plan(storage: Storage) -> Plan:
    """Thirty events in two files, and five late ones."""
    files = {
        "part-00000.avro": [make_event(HOUR, number) for number in range(20)],
        "part-00001.avro": [make_event(HOUR, number) for number in range(20, 30)],
        "late-00000.avro": [make_event(EARLIER, number) for number in range(5)],
    }
    return Plan(storage, HOUR, files)
