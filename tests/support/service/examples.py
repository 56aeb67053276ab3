"""Types, rules and ranges that the tests of the delivery service share."""

from __future__ import annotations

import functools
import io
from typing import Any

import fastavro

from hourmark.avro.framing import unframe
from hourmark.config.groups import ParsingSettings
from hourmark.records.ranges import ByteRange, Part
from hourmark.rules.event_types import DEAD_LETTERS, EventType, LineRule, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules, ParsedRange, ParsedRecord, parse_range

NOW_MS = 1_795_225_200_000  # 2026-11-21T01:40:00Z
HOST = "0123456789abcdef" * 2
FILE = "fedcba9876543210" * 2

CLICK = EventType(
    name="click",
    fields=[
        {"name": "user", "type": "string"},
        {"name": "ms", "type": "long"},
        {"name": "ref", "type": ["null", "string"], "default": None},
    ],
)
NOTE = EventType(
    name="note",
    fields=[{"name": "text", "type": "string"}],
    line=LineRule(payload="text", field="text"),
)
RAW = EventType(
    name="raw",
    fields=[{"name": "line", "type": "bytes"}, {"name": "level", "type": ["null", "string"]}],
    line=LineRule(payload="text", field="line", time="observed"),
)
SERVER = EventType(
    name="server",
    fields=[
        {"name": "level", "type": "string"},
        {"name": "thread", "type": ["null", "int"]},
        {"name": "message", "type": "bytes"},
    ],
    line=LineRule(
        payload="pattern",
        pattern=(
            r"(?P<time>\d{4}-\S+ [0-9:,]+) (?P<level>[A-Z]+)(?: \[t(?P<thread>\d+)\])? "
            r"(?P<message>.*)"
        ),
        time_format="%Y-%m-%d %H:%M:%S,%f",
    ),
)
TYPES = (CLICK, NOTE, RAW, SERVER, DEAD_LETTERS)
SOURCES = (
    Source(name="app", types=["click", "note", "raw"]),
    Source(name="caught", types=["click"], catch_all="raw"),
    Source(name="servers", format="free", types=["server"]),
    Source(name="anything", format="free", types=["server"], catch_all="raw"),
)


@functools.cache
def rules_of(sequence: int = 1, parsing: ParsingSettings = ParsingSettings()) -> Rules:  # noqa: B008  # frozen
    """A revision with all of the types above; schema ids count from 1."""
    versions = {t.name: TypeVersion(t, schema_id) for schema_id, t in enumerate(TYPES, 1)}
    return Rules(
        sequence=sequence, types=versions, sources={s.name: s for s in SOURCES}, parsing=parsing
    )


@functools.cache
def compiled() -> CompiledRules:
    """The same, ready for parsing."""
    return CompiledRules(rules_of())


def range_of(
    body: bytes, source: str = "app", *, start: int = 0, part: Part = Part.LINES, **more: Any
) -> ByteRange:
    """A range with this body."""
    fields: dict[str, Any] = {
        "host_id": HOST,
        "file_id": FILE,
        "generation": 0,
        "start": start,
        "end": start + len(body),
        "observed_at_ms": NOW_MS,
        "rules": rules_of().id,
        "zone": "Europe/Berlin",
        "source": source,
        "path": "/var/log/app.log",
        "host_name": "web-1",
        "part": part,
    }
    return ByteRange(**{**fields, **more})


def parsed(body: bytes, source: str = "app", **more: Any) -> ParsedRange:
    """What becomes of this body."""
    return parse_range(range_of(body, source, **more), body, compiled())


def decoded(record: ParsedRecord, rules: Rules | None = None) -> dict[str, Any]:
    """The record's Avro datum, by fastavro and the schema that its framing names."""
    schema_id, datum = unframe(record.value)
    (version,) = (t for t in (rules or rules_of()).types.values() if t.schema_id == schema_id)
    schema = fastavro.parse_schema(version.schema, named_schemas={})
    stream = io.BytesIO(datum)
    row: Any = fastavro.schemaless_reader(stream, schema, None)
    assert not stream.read(), "nothing follows the datum"
    return dict(row)


def only(result: ParsedRange) -> dict[str, Any]:
    """The one record of a range, decoded, with its `type`."""
    (record,) = result.records
    return {"type": record.event_type, **decoded(record)}


def one(body: bytes, source: str = "app", **more: Any) -> dict[str, Any]:
    """The one record that becomes of this body; see `only`."""
    return only(parsed(body, source, **more))


def refused(body: bytes, source: str = "app") -> list[str]:
    """The reasons of the dead letters that become of this body, in order."""
    return [
        decoded(r)["reason"] for r in parsed(body, source).records if r.event_type == "dead-letters"
    ]


def syslog(
    msgid: str = "click",
    msg: bytes = b'{"user":"u","ms":1}',
    *,
    time: str = "2026-11-21T01:39:58.123456Z",
    host: str = "h7",
) -> bytes:
    """A line of RFC 5424 with its LF."""
    return f"<134>1 {time} {host} app 42 {msgid} - ".encode() + msg + b"\n"
