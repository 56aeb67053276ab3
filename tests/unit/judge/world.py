"""A small world to judge: source files, and buckets of their lines as Hourmark would write them, to be spoilt by a test.

Made with the project's own event ids, envelope and manifest, so that the judge's second reading of the design is held against
the first.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import fastavro

from hourmark import dead_letters
from hourmark.avro import event_schema, fingerprint
from hourmark.event_id import EventId, LineIds
from hourmark.hours import Hour
from hourmark.manifest import BucketFile, Evidence, Grade, Manifest
from hourmark.ranges import file_id
from infra.judge.statx import birth_ns

HOST_ID = "0123456789abcdef0123456789abcdef"
MINUTE = 60_000
START_MS = 1_763_683_200_000  # 2025-11-21T00:00:00Z

SCHEMAS: dict[str, Any] = {
    "lines": event_schema("lines", [{"name": "line", "type": "bytes"}]),
    "track-played": event_schema("track-played", [{"name": "track", "type": "string"}, {"name": "ms", "type": "long"}]),
    "server-log": event_schema("server-log", [{"name": "line", "type": "bytes"}]),
    "dead-letters": event_schema("dead-letters", [dict(field) for field in dead_letters.FIELDS]),
}
TYPES = {
    "lines": {"content": "msg-bytes", "field": "line"},
    "track-played": {"content": "json"},
    "server-log": {"content": "raw-line", "field": "line"},
}
Row = dict[str, Any]


@dataclasses.dataclass(slots=True)
class BucketPlan:
    """A bucket before it is written; `late` rows go to a late file."""

    event_type: str
    hour: Hour
    rows: list[Row] = dataclasses.field(default_factory=list)
    late: list[Row] = dataclasses.field(default_factory=list)


def rfc5424(event_type: str, time_ms: int, message: bytes) -> bytes:
    """A line without its LF."""
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"
    return f"<134>1 {stamp} host app - {event_type} - ".encode() + message


class World:
    """Source files in `folder/sources`, HDFS in `folder/hdfs`; `write` makes the buckets of `plans`."""

    def __init__(self, folder: Path) -> None:
        self.sources = folder / "sources"
        self.hdfs = folder / "hdfs"
        self.root = self.hdfs / "hourmark" / "buckets"
        self.plans: list[BucketPlan] = []
        self.files: list[dict[str, Any]] = []
        for path in (self.sources, self.root):
            path.mkdir(parents=True)

    def source(self, name: str, content: bytes, **told: Any) -> Path:
        """A source file, named to the judge."""
        path = self.sources / name
        path.write_bytes(content)
        self.files.append({"path": str(path), **told})
        return path

    def row(self, path: Path, position: int, line: bytes, time_ms: int, /, **fields: Any) -> Row:
        """The event of a line."""
        with path.open("rb") as opened:
            status = path.stat()
            identity = file_id(status.st_dev, status.st_ino, birth_ns(opened.fileno()))
        return {
            "event_id": bytes(LineIds(HOST_ID, identity, 0).make(time_ms, position, line)),
            "event_time": time_ms,
            "host": "host",
            "source": str(path),
            "file": {"id": identity, "generation": 0},
            "position": position,
            **fields,
        }

    def dead_letter(self, path: Path, position: int, line: bytes, time_ms: int, reason: str = "bad_json") -> Row:
        """The dead letter of a line."""
        fields: Row = {"reason": reason, "detail": "", "claimed_type": None, "raw": line, "range_id": bytes(8)}
        fields |= {"range_start": 0, "range_end": 1, "rules": "1-x", "declared_source": "s"}
        return self.row(path, position, line, time_ms, **fields)

    def plan(self, event_type: str, minute: int) -> BucketPlan:
        """The bucket of a type's minute, counted from the world's start."""
        hour = Hour.of(START_MS + minute * MINUTE, 60)
        found = next((p for p in self.plans if (p.event_type, p.hour) == (event_type, hour)), None)
        if found is None:
            found = BucketPlan(event_type, hour)
            self.plans.append(found)
        return found

    def write(self) -> None:
        """Write all plans as closed buckets."""
        for plan in self.plans:
            self.write_bucket(plan)

    def folder(self, plan: BucketPlan) -> Path:
        """Where a plan's bucket is."""
        return self.root / plan.hour.bucket_path(plan.event_type)

    def write_bucket(self, plan: BucketPlan) -> None:
        """Write one."""
        folder = self.folder(plan)
        folder.mkdir(parents=True)
        parts = [("part-00000.avro", plan.rows), ("late-00000.avro", plan.late)]
        files = [_write_file(folder / name, plan.event_type, rows) for name, rows in parts if rows]
        late: dict[str, int] = {}
        for row in plan.late:
            label = str(Hour.of(row["event_time"], 60))
            late[label] = late.get(label, 0) + 1
        ids = [EventId(row["event_id"]) for row in (*plan.rows, *plan.late)]
        manifest = Manifest(
            type=plan.event_type, hour=str(plan.hour), bucket_seconds=60, grade=Grade.PROVED,
            evidence=Evidence(method="join", cut_at_ms=0, audit_records=1, promised=len(ids), audit_next={}),
            files=files, events=len(ids), late=late, duplicates_removed=0, surplus=0,
            id_sum=f"{sum(event_id.tail for event_id in ids) % 2**64:016x}", offsets=[], ledger="x", ledger_commit=1,
            attempt="a", closed_at_ms=0, software="x",
        )  # fmt: skip
        (folder / "_SUCCESS").write_bytes(manifest.encode())

    def expectations(self, webhdfs: str, **changes: Any) -> dict[str, Any]:
        """What the judge is told."""
        told = {"webhdfs": webhdfs, "root": "hdfs://127.0.0.1:1/hourmark/buckets", "user": "me", "files": self.files}
        return copy.deepcopy(told | {"types": TYPES, "host_id": HOST_ID, "host": "host"} | changes)


def _write_file(path: Path, event_type: str, rows: list[Row]) -> BucketFile:
    buffer = io.BytesIO()
    fastavro.writer(buffer, SCHEMAS[event_type], rows, codec="deflate")
    path.write_bytes(buffer.getvalue())
    return BucketFile(
        name=path.name,
        records=len(rows),
        bytes=path.stat().st_size,
        blake2b=hashlib.blake2b(buffer.getvalue(), digest_size=16).hexdigest(),
        schema_id=1,
        schema_fingerprint=fingerprint(SCHEMAS[event_type]),
    )


def small_world(folder: Path) -> World:
    """Two minutes of three types, a late event, dead letters, an empty bucket, and an unterminated line. Nothing is wrong."""
    world = World(folder)
    content, rows = b"", []
    for number in range(6):
        time_ms = START_MS + number * 20_000
        event_type = "lines" if number % 2 else "track-played"
        message = b"line \xff\x00 \r%d" % number if number % 2 else json.dumps({"track": f"t{number}", "ms": number}).encode()
        line = rfc5424(event_type, time_ms, message)
        rows.append((event_type, len(content), line, time_ms, message))
        content += line + b"\n"
    broken = rfc5424("track-played", START_MS, b"{no json")
    app = world.source("app.log", content + broken + b"\n" + b"\n" + rfc5424("lines", START_MS, b"half"))
    for event_type, position, line, time_ms, message in rows:
        fields = {"line": message} if event_type == "lines" else json.loads(message)
        world.plan(event_type, (time_ms - START_MS) // MINUTE).rows.append(world.row(app, position, line, time_ms, **fields))
    dead = world.plan("dead-letters", 1)
    dead.rows.append(world.dead_letter(app, len(content), broken, START_MS + MINUTE))
    dead.rows.append(world.dead_letter(app, len(content) + len(broken) + 1, b"", START_MS + MINUTE + 1, "empty_line"))
    server = world.source("kafka.log", b"[x] INFO a\nlate one\nlater", form="free", type="server-log", size=20)
    world.plan("server-log", 1).rows.append(world.row(server, 0, b"[x] INFO a", START_MS + MINUTE, line=b"[x] INFO a"))
    world.plan("server-log", 2)
    world.plan("server-log", 3).late.append(world.row(server, 11, b"late one", START_MS + 5, line=b"late one"))
    return world
