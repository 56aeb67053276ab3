"""A small world to judge: source files, and buckets of their lines as Hourmark would write them, to
be spoilt by a test.

Made with the project's own parser, envelope and manifest, so that the judge's second reading of the
design is held against the first.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import hashlib
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro

from hourmark.avro.framing import event_schema, fingerprint, unframe
from hourmark.config.groups import AvroCodec, ParsingSettings
from hourmark.records import dead_letters
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.hours import Hour
from hourmark.records.manifest import (
    BucketEvidence,
    BucketFile,
    BucketOffset,
    Grade,
    HourTotals,
    Manifest,
    PreviousMarker,
)
from hourmark.records.ranges import ByteRange, Part, encode_range_fields, file_id
from hourmark.rules.event_types import DEAD_LETTERS, EventType, LineRule, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules, parse_range
from hourmark_verify.judge.identity import birth_ns

HOST_ID = "0123456789abcdef0123456789abcdef"
MINUTE = 60_000
START_MS = 1_763_683_200_000  # 2025-11-21T00:00:00Z

SCHEMAS: dict[str, Any] = {
    "lines": event_schema("lines", [{"name": "line", "type": "bytes"}]),
    "track-played": event_schema(
        "track-played", [{"name": "track", "type": "string"}, {"name": "ms", "type": "long"}]
    ),
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
    codec: AvroCodec = "deflate"


def rfc5424(event_type: str, time_ms: int, message: bytes) -> bytes:
    """A line without its LF."""
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"
    return f"<134>1 {stamp} host app - {event_type} - ".encode() + message


class World:
    """Source files in `folder/sources`, HDFS in `folder/hdfs`; `write` makes the buckets of
    `plans`.
    """

    def __init__(
        self, folder: Path, schemas: dict[str, Any] = SCHEMAS, types: dict[str, Any] = TYPES
    ) -> None:
        self.schemas, self.types = schemas, types
        self.sources = folder / "sources"
        self.hdfs = folder / "hdfs"
        self.root = self.hdfs / "hourmark" / "buckets"
        self.plans: list[BucketPlan] = []
        self.files: list[dict[str, Any]] = []
        self.webhdfs = "http://unused"
        self.told: dict[str, Any] = {}  # to the judge, besides what is always told
        self.api: list[dict[str, Any]] = []
        self._sequence = 1  # of the rules' revision
        self._rules: set[str] = set()  # in force
        self._earlier: dict[
            str, dict[str, Any]
        ] = {}  # what the judge is told of types, by older revision
        self._versions: dict[str, list[Any]] = {}  # a type's older schemas
        self._broken_at: dict[tuple[Path, int], bool] = {}  # of a line: what was first made of it
        self._compiled: dict[str, tuple[CompiledRules, Rules]] = {}
        self._written: dict[Path, bytes] = {}  # as it was written, whatever becomes of the file
        for path in (self.sources, self.root):
            path.mkdir(parents=True)

    def source(self, name: str, content: bytes, **told: Any) -> Path:
        """A source file, named to the judge."""
        path = self.sources / name
        path.write_bytes(content)
        self.files.append({"path": str(path), "source": "s", **told})
        self._written[path] = content
        return path

    def revise(self, event_type: str, *more: dict[str, Any]) -> None:
        """A new revision of the rules, in which a type has these fields too: what is parsed from
        now on is parsed under it.
        """
        self._earlier |= {rules: self._told_types() for rules in self._rules - self._earlier.keys()}
        self._versions.setdefault(event_type, []).append(self.schemas[event_type])
        fields = [*self.schemas[event_type]["fields"][6:], *more]
        self.schemas = {**self.schemas, event_type: event_schema(event_type, fields)}
        self._sequence += 1
        self._compiled.clear()

    def told_of(self, path: Path) -> dict[str, Any]:
        """What the judge is told of a file; its path alone, where it is not named."""
        return next((file for file in self.files if file["path"] == str(path)), {"path": str(path)})

    def host_ids(self, path: Path) -> list[str]:
        """Of the hosts that sent the file, the last one last."""
        ids = self.told_of(path).get("host_id", HOST_ID)
        return [ids] if isinstance(ids, str) else ids

    def parse(
        self,
        path: Path,
        start: int,
        end: int,
        time_ms: int,
        part: Part = Part.LINES,
        host_id: str | None = None,
    ) -> list[tuple[str, Row]]:
        """What the project's own parser makes of these bytes, sent at this time: types and rows."""
        body = path.read_bytes()[start:end]
        told = self.told_of(path)
        compiled, rules = self.compiled(told)
        self._rules.add(rules.id)
        sent = ByteRange(
            host_id=host_id or self.host_ids(path)[-1],
            file_id=identity(path),
            generation=0,
            start=start,
            end=end,
            observed_at_ms=time_ms,
            rules=rules.id,
            zone="UTC",
            source="s",
            path=str(path),
            host_name=told.get("host", "host"),
            part=part,
            record_start=told.get("record_start", ""),
            fields=encode_range_fields(told.get("fields", {})),
            format=told.get("format", ""),
        )
        records = parse_range(sent, body, compiled).records
        found = [
            (record.event_type, self.decoded(record.event_type, record.value)) for record in records
        ]
        if part is Part.LINES and not {"record_start", "format"} & told.keys():
            dead = {row["position"] for event_type, row in found if event_type == "dead-letters"}
            for line in body.removesuffix(b"\n").split(b"\n"):
                self._broken_at.setdefault((path, start), start in dead)
                start += len(line) + 1
        return found

    def row(self, path: Path, position: int, line: bytes, time_ms: int, /, **fields: Any) -> Row:
        """The event of a line."""
        of = identity(path)
        return {
            "event_id": bytes(
                LineIds(self.host_ids(path)[-1], of, 0).make(time_ms, position, line)
            ),
            "event_time": time_ms,
            "host": "host",
            "source": str(path),
            "file": {"id": of, "generation": 0},
            "position": position,
            **fields,
        }

    def dead_letter(
        self, path: Path, position: int, line: bytes, time_ms: int, reason: str = "bad_json"
    ) -> Row:
        """The dead letter of a line in a range of its own; of a line that is none, what a parser
        with a fault would make.
        """
        last = path.read_bytes()[position + len(line) :][:1] == b"\n"
        part = Part.LINES if reason != "line_too_long" else Part.LAST_CHUNK if last else Part.CHUNK
        end = position + len(line) + last
        for event_type, row in (
            self.parse(path, position, end, time_ms, part) if end > position else ()
        ):
            if event_type == "dead-letters":
                return row
        fields: Row = {
            "reason": reason,
            "detail": "it is wrong",
            "claimed_type": None,
            "raw": line,
            "range_id": bytes(8),
        }
        fields |= {
            "range_start": position,
            "range_end": end,
            "rules": "1-x",
            "declared_source": "s",
        }
        return self.row(path, position, line, time_ms, **fields)

    def plan(self, event_type: str, minute: int) -> BucketPlan:
        """The bucket of a type's minute, counted from the world's start."""
        return self.plan_at(event_type, START_MS + minute * MINUTE)

    def plan_at(self, event_type: str, time_ms: int) -> BucketPlan:
        """The bucket of a type's events of this time."""
        hour = Hour.containing(time_ms, 60)
        found = next((p for p in self.plans if (p.event_type, p.hour) == (event_type, hour)), None)
        if found is None:
            found = BucketPlan(event_type, hour)
            self.plans.append(found)
        return found

    def leave_no_gap(self, event_type: str) -> None:
        """Plan what lies between its buckets."""
        starts_s = [plan.hour.start_s for plan in self.plans if plan.event_type == event_type]
        for start_s in range(min(starts_s), max(starts_s), 60):
            self.plan_at(event_type, start_s * 1000)

    def write(self) -> None:
        """Write all plans as closed buckets."""
        for plan in self.plans:
            self.write_bucket(plan)
        self.chain()

    def chain(self) -> None:
        """Let each marker name the one before it."""
        for plan in sorted(self.plans, key=lambda p: p.hour):
            self._follow(plan)

    def _follow(self, plan: BucketPlan) -> None:
        before = plan.hour.previous()
        last, marker = (
            self.root / hour.bucket_path(plan.event_type) / "_SUCCESS"
            for hour in (before, plan.hour)
        )
        previous = (
            PreviousMarker.from_marker(str(before), last.read_bytes()) if last.exists() else None
        )
        said = {"previous": previous and previous.model_dump()}
        marker.write_text(
            json.dumps(json.loads(marker.read_bytes()) | said)
        )  # as JSON: a marker may be spoilt already

    def folder(self, plan: BucketPlan) -> Path:
        """Where a plan's bucket is."""
        return self.root / plan.hour.bucket_path(plan.event_type)

    def write_bucket(self, plan: BucketPlan) -> None:
        """Write one."""
        folder = self.folder(plan)
        folder.mkdir(parents=True)
        parts = [("part", plan.rows), ("late", plan.late)]
        files = [
            file
            for kind, rows in parts
            for file in self._write_files(folder, kind, plan.event_type, rows, plan.codec)
        ]
        late = Counter(str(Hour.containing(row["event_time"], 60)) for row in plan.late)
        origins = Counter({str(plan.hour): len(plan.rows)}) + late
        ids = [EventId(row["event_id"]) for row in (*plan.rows, *plan.late)]
        evidence = BucketEvidence(
            method="sums" if ids else "empty",
            cut_at_ms=plan.hour.end_ms + 1,
            audit_records=min(1, len(ids)),
            promised=len(ids),
            audit_next={"0": 1},
        )
        manifest = Manifest(
            type=plan.event_type,
            hour=str(plan.hour),
            bucket_seconds=60,
            grade=Grade.PROVED,
            evidence=evidence,
            codec="deflate" if files and plan.codec == "deflate" else None,
            files=files,
            events=len(ids),
            late=dict(late),
            duplicates_removed=0,
            unaudited=0,
            books={
                hour: HourTotals(rows=n, events=n, promised=n, unaudited=0)
                for hour, n in origins.items()
            },
            id_sum=f"{sum(event_id.low64 for event_id in ids) % 2**64:016x}",
            offsets=[
                BucketOffset(
                    topic=f"edge.events.{plan.event_type}",
                    topic_id="t",
                    partition=0,
                    next=1_000_000,
                )
            ],
            ledger="x",
            ledger_commit=plan.hour.start_s,
            attempt="a",
            closed_at_ms=plan.hour.end_ms + 2,
            software="x",
        )
        (folder / "_SUCCESS").write_bytes(manifest.encode())
        self._follow(plan)

    def written(self) -> list[dict[str, Any]]:
        """The writers' own record. Which lines are broken is the project's parser's word here."""
        records = []
        for path, content in self._written.items():
            told = self.told_of(path)
            if "size" not in told:
                digest = hashlib.blake2b(content, digest_size=16).hexdigest()
                broken = self._broken(told, content)
                records.append(
                    {"path": str(path), "bytes": len(content), "blake2b": digest, "broken": broken}
                )
        return records

    def expectations(self, **changes: Any) -> dict[str, Any]:
        """What the judge is told."""
        told: dict[str, Any] = {
            "webhdfs": self.webhdfs,
            "root": "hdfs://127.0.0.1:1/hourmark/buckets",
            "user": "me",
            "files": self.files,
            "types": self._told_types(),
            "earlier": self._earlier,
            "host_id": HOST_ID,
            "host": "host",
            "written": self.written(),
            "api": self.api,
            "observed_ms": [START_MS, START_MS + 100 * MINUTE],
            "rules": sorted(self._rules),
        }
        return copy.deepcopy(told | self.told | changes)

    def compiled(self, told: dict[str, Any]) -> tuple[CompiledRules, Rules]:
        """The rules that a file is parsed under: all types, and its source, `s`."""
        known = repr(
            [
                sorted(self.types),
                *(told.get(name) for name in ("form", "type", "catch_all", "hosts")),
            ]
        )
        if known not in self._compiled:
            self._compiled[known] = self._compile(told)
        return self._compiled[known]

    def _compile(self, told: dict[str, Any]) -> tuple[CompiledRules, Rules]:
        form = told.get("form", "rfc5424")
        carried = told.get("type") or (list(self.types) if form == "rfc5424" else ["lines"])
        carried = [carried] if isinstance(carried, str) else carried
        rest = [
            name for name in carried if form == "free" and self.types[name]["content"] == "raw-line"
        ]
        rest = [name for name in rest if "pattern" not in self.types[name]]  # it takes lines whole
        catch_all = told.get("catch_all", rest[0] if rest else None)
        source = Source(
            name="s",
            format=form,
            types=carried,
            catch_all=catch_all,
            host=told.get("hosts", "line"),
        )
        types = [*(self._declared(name) for name in self.types), DEAD_LETTERS]
        rules = Rules(
            sequence=self._sequence,
            types={t.name: TypeVersion(t, n) for n, t in enumerate(types, 1)},
            sources={"s": source},
            parsing=ParsingSettings(bucket_seconds=60),
        )
        return CompiledRules(rules), rules

    def decoded(self, event_type: str, value: bytes) -> Row:
        """The row of a Kafka value."""
        schema = fastavro.parse_schema(plain(self.schemas[event_type]), named_schemas={})
        row: Any = fastavro.schemaless_reader(io.BytesIO(unframe(value)[1]), schema, None)
        return dict(row)

    def _declared(self, name: str) -> EventType:
        rule: Any = dict(self.types[name])
        content = rule.pop("content")
        payload = (
            content
            if content in ("json", "logfmt", "tsv")
            else "pattern"
            if "pattern" in rule
            else "text"
        )
        if content == "raw-line" and "time_field" not in rule:
            rule["time"] = "observed"
        return EventType(
            name=name,
            fields=self.schemas[name]["fields"][6:],
            line=LineRule(payload=payload, **rule),
        )

    def _told_types(self) -> dict[str, Any]:
        return {
            name: {"fields": self.schemas[name]["fields"][6:], **rule}
            for name, rule in self.types.items()
        }

    def _broken(self, told: dict[str, Any], content: bytes) -> list[int]:
        """Where the lines start that the project's parser makes dead letters of, but for those that
        go in pieces.
        """
        compiled, rules = self.compiled(told)
        broken, start = [], 0
        for line in content.split(b"\n")[:-1]:
            end = start + len(line) + 1
            if len(line) <= self.told.get("line_bytes_max", 4 << 20):
                known = self._broken_at.get((Path(told["path"]), start))
                if known is None:
                    sent = ByteRange(
                        host_id=HOST_ID,
                        file_id="0" * 32,
                        generation=0,
                        start=start,
                        end=end,
                        observed_at_ms=START_MS + MINUTE,
                        rules=rules.id,
                        zone="UTC",
                        source="s",
                        path="/p",
                        host_name="host",
                    )
                    known = parse_range(sent, line + b"\n", compiled).dead_letters > 0
                broken += [start] * known
            start = end
        return broken

    def _write_files(
        self, folder: Path, kind: str, event_type: str, rows: list[Row], codec: AvroCodec
    ) -> list[BucketFile]:
        """Container files, each of one schema: that which has a row's fields."""
        schemas = [*self._versions.get(event_type, []), self.schemas[event_type]]
        by_version: dict[int, list[Row]] = {}
        for row in rows:
            fit = (
                n
                for n, schema in enumerate(schemas)
                if [f["name"] for f in schema["fields"]] == list(row)
            )
            by_version.setdefault(next(fit, len(schemas) - 1), []).append(row)
        first_id = 1 + 10 * sorted(self.schemas).index(event_type)
        files = []
        for number, (version, held) in enumerate(sorted(by_version.items())):
            buffer, path = io.BytesIO(), folder / f"{kind}-{number:05d}.avro"
            fastavro.writer(buffer, schemas[version], held, codec=codec)
            path.write_bytes(buffer.getvalue())
            digest = hashlib.blake2b(buffer.getvalue(), digest_size=16).hexdigest()
            files.append(
                BucketFile(
                    name=path.name,
                    records=len(held),
                    bytes=path.stat().st_size,
                    blake2b=digest,
                    schema_id=first_id + version,
                    schema_fingerprint=fingerprint(schemas[version]),
                )
            )
        return files


def identity(path: Path) -> str:
    """A file's id."""
    with path.open("rb") as opened:
        status = path.stat()
        return file_id(status.st_dev, status.st_ino, birth_ns(opened.fileno()))


def plain(schema: Any) -> Any:
    """The schema without logical types: rows are held as Avro holds them."""
    if isinstance(schema, dict):
        return {key: plain(value) for key, value in schema.items() if key != "logicalType"}
    return [plain(item) for item in schema] if isinstance(schema, list) else schema


def small_world(folder: Path) -> World:
    """Two minutes of three types, a late event, a dead letter, blanks, an empty bucket, a half
    line. Nothing is wrong.
    """
    world = World(folder)
    content, rows = b"", []
    for number in range(6):
        time_ms = START_MS + number * 20_000
        event_type = "lines" if number % 2 else "track-played"
        message = (
            b"line \xff\x00 \r%d" % number
            if number % 2
            else json.dumps({"track": f"t{number}", "ms": number}).encode()
        )
        line = rfc5424(event_type, time_ms, message)
        rows.append((event_type, len(content), line, time_ms, message))
        content += line + b"\n"
    broken = rfc5424("track-played", START_MS, b"{no json")
    app = world.source(
        "app.log", content + broken + b"\n" + b"\n\r\n" + rfc5424("lines", START_MS, b"half")
    )
    for event_type, position, line, time_ms, message in rows:
        fields = {"line": message} if event_type == "lines" else json.loads(message)
        world.plan_at(event_type, time_ms).rows.append(
            world.row(app, position, line, time_ms, **fields)
        )
    dead = world.plan("dead-letters", 1)
    dead.rows.append(world.dead_letter(app, len(content), broken, START_MS + MINUTE))
    server = world.source(
        "kafka.log", b"[x] INFO a\nlate one\nlater", form="free", type="server-log", size=20
    )
    world.plan("server-log", 1).codec = "zstandard"
    world.plan("server-log", 1).rows.append(
        world.row(server, 0, b"[x] INFO a", START_MS + MINUTE, line=b"[x] INFO a")
    )
    world.plan("server-log", 2)
    world.plan("server-log", 3).late.append(
        world.row(server, 11, b"late one", START_MS + 5, line=b"late one")
    )
    return world
