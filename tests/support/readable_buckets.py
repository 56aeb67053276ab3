"""Closed buckets for the tests of readers, written with the product's own writer and manifest."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import fastavro
from tests.support.containers import append_all
from tests.support.records import manifest

from hourmark.avro.framing import event_schema, fingerprint
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, BucketFile, Manifest, PreviousMarker
from hourmark_etl.buckets.avro_container import ContainerWriter
from hourmark_etl.storage import LocalDisk

TYPE: Final = "access"
FIELDS: Final[Sequence[Mapping[str, Any]]] = [
    {"name": "status", "type": "int"},
    {"name": "path", "type": ["null", "string"]},
]

Row = dict[str, Any]


class File(NamedTuple):
    """A data file: the schema of its events, and the events."""

    schema_id: int
    fields: Sequence[Mapping[str, Any]]
    rows: Sequence[Row]


def row(hour: str, number: int, length_s: int = 3600, **values: Any) -> Row:
    """An event in an hour, `number` milliseconds after its start, with values of its own fields."""
    time_ms = Hour.parse(hour, length_s).start_s * 1000 + number
    own = values or {"status": 200 + number, "path": f"/{number}"}
    return {
        "event_id": bytes(LineIds("host-1", "file-1", 0).make(time_ms, number, b"a line")),
        "event_time": time_ms,
        "host": "host-1",
        "source": "/var/log/app.log",
        "file": {"id": "file-1", "generation": 0},
        "position": number,
        **own,
    }


class ReadableSite:
    """Writes closed buckets below a local folder, each after the one before it.

    Attributes:
        url: URL of the root.
    """

    def __init__(self, root: Path, event_type: str = TYPE, length_s: int = 3600) -> None:
        self.storage = LocalDisk(root)
        self.url = f"file://{root}"
        self._type, self._length_s = event_type, length_s
        self._previous: PreviousMarker | None = None

    def folder(self, hour: str) -> str:
        return Hour.parse(hour, self._length_s).bucket_path(self._type)

    def close(self, hour: str, files: Mapping[str, File] | None = None, **changes: Any) -> Manifest:
        """Write a bucket, by default with one event; `changes` are those of its manifest."""
        given = {"part-00000.avro": File(1, FIELDS, [row(hour, 0, self._length_s)])}
        given = given if files is None else dict(files)
        rows = [r for file in given.values() for r in file.rows]
        late = Counter(
            str(Hour.containing(r["event_time"], self._length_s))
            for name, file in given.items()
            if name.startswith("late-")
            for r in file.rows
        )
        total = sum(EventId(r["event_id"]).low64 for r in rows)
        told = manifest(
            Hour.parse(hour, self._length_s),
            type=self._type,
            bucket_seconds=self._length_s,
            previous=self._previous,
            files=[self._write(hour, name, file) for name, file in given.items()],
            events=len(rows),
            late=dict(late),
            id_sum=f"{total % (1 << 64):016x}",
            software="hourmark test",
        ).model_copy(update=changes)
        told = told.with_own_digest()
        content = told.encode()
        self.storage.write_new(f"{self.folder(hour)}/{MARKER}", content)
        self._previous = PreviousMarker.from_marker(hour, content)
        return told

    def _write(self, hour: str, name: str, file: File) -> BucketFile:
        schema = event_schema(self._type, [dict(field) for field in file.fields])
        parsed = fastavro.parse_schema(schema)
        datums = []
        for event in file.rows:
            datum = io.BytesIO()
            fastavro.schemaless_writer(datum, parsed, event)
            datums.append(datum.getvalue())
        with self.storage.create(f"{self.folder(hour)}/{name}") as target:
            writer = ContainerWriter(target, json.dumps(schema))
            append_all(writer, datums)
            stats = writer.close()
        return BucketFile(
            name=name,
            records=stats.records,
            bytes=stats.bytes,
            blake2b=stats.blake2b,
            schema_id=file.schema_id,
            schema_fingerprint=fingerprint(schema),
        )
