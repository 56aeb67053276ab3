"""CPU time of the delivery service per event by the shape of a line, relative to a flat JSON
object.

It covers parsing, id, Avro encoding and audit data. All lines have the same length, so that their
bytes cost the same. `by_python` shows whether the slower Python implementation parses a shape.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from hourmark.config.groups import ParsingSettings
from hourmark.records.ranges import ByteRange
from hourmark.rules.event_types import DEAD_LETTERS, SYSLOG, EventType, LineRule, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.message import PackedMessages
from hourmark_delivery_service.parsing import CompiledRules, RangeParser

LINE_BYTES: Final = 300
_NOW_MS: Final = 1_795_225_200_000
_STAMP: Final = "2026-11-21T01:40:00.123Z"
_PAD: Final = {"name": "pad", "type": "string"}


@dataclasses.dataclass(frozen=True)
class LineShape:
    """An event type and the text of its lines before and after the padding, by line number."""

    name: str
    fields: list[dict[str, Any]]
    parts: Callable[[int], tuple[str, str]]
    line: LineRule = LineRule()  # noqa: RUF009  # frozen
    format: str = "rfc5424"


def _json(
    name: str,
    fields: list[dict[str, Any]],
    event: Callable[[int], dict[str, Any]],
    format_: str = "rfc5424",
) -> LineShape:
    header = f"<134>1 {_STAMP} web-1 a - shape - " if format_ == "rfc5424" else ""

    def parts(number: int) -> tuple[str, str]:
        said = json.dumps({**event(number), "pad": "|"}, separators=(",", ":"))
        before, after = (header + said).split("|")
        return before, after

    rule = LineRule() if format_ == "rfc5424" else LineRule(time="observed")
    return LineShape(name, [*fields, _PAD], parts, rule, format_)


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _field(name: str, type_: Any) -> dict[str, Any]:
    return {"name": name, "type": type_}


def _logical(base: str, name: str) -> dict[str, str]:
    return {"type": base, "logicalType": name}


_RFC5424: Final = f"<134>1 {_STAMP} web-1 a - shape - "
_FLAT: Final = [_field("page", "string"), _field("ms", "long"), _field("user", ["null", "string"])]
_ENUM: Final = [f"LEVEL_{n}" for n in range(12)]


def _flat(n: int) -> dict[str, Any]:
    return {"page": f"/p/{n % 97}", "ms": n * 7919 % 1000, "user": f"u-{n * 48271 % 99991}"}


def _text_line(body: Callable[[int], str], header: str) -> Callable[[int], tuple[str, str]]:
    return lambda n: (f"{header}{body(n)}", "")


_DEEP: Final = _record("b", _field("c", _record("c", *_FLAT)), _field("n", "int"))
_LOGICAL: Final = [
    _field("at", _logical("long", "timestamp-micros")),
    _field("day", _logical("int", "date")),
    _field("id", _logical("string", "uuid")),
    _field("t", _logical("int", "time-millis")),
]
_SPLIT: Final = LineRule(
    payload="pattern",
    pattern=r"(?P<time>\S+) (?P<page>\S+) (?P<ms>\d+) (?P<user>\S+) (?P<pad>.*)",
    time_format="%Y-%m-%dT%H:%M:%S.%f",
)
SHAPES: Final = (
    _json("flat", _FLAT, _flat),
    _json(
        "nested",
        [_field("a", _record("a", _field("b", _DEEP), _field("s", "string")))],
        lambda n: {"a": {"b": {"c": _flat(n), "n": n % 7}, "s": "x"}},
    ),
    _json(
        "unions",
        [_field(f"u{i}", ["null", "boolean", "long", "double", "string"]) for i in range(5)],
        lambda n: {f"u{i}": [None, True, n, n / 8, f"v{n % 10}"][(n + i) % 5] for i in range(5)},
    ),
    _json(
        "enums",
        [_field(f"e{i}", {"type": "enum", "name": f"e{i}", "symbols": _ENUM}) for i in range(4)],
        lambda n: {f"e{i}": _ENUM[(n + i) % 12] for i in range(4)},
    ),
    _json(
        "logical types",
        _LOGICAL,
        lambda n: {
            "at": _STAMP,
            "day": 20_000 + n % 99,
            "id": f"0123abcd-0123-4567-89ab-{n:012x}",
            "t": n,
        },
    ),
    _json(
        "decimals in text",
        [_field("ratio", "double"), _field("x", "double")],
        lambda n: {"ratio": n / 7, "x": n * 1e-9},
    ),
    _json(
        "array",
        [_field("a", {"type": "array", "items": "long"})],
        lambda n: {"a": [n + i for i in range(12)]},
    ),
    _json(
        "map",
        [_field("m", {"type": "map", "values": "string"})],
        lambda n: {"m": {f"k{i}": f"v{n % 10}" for i in range(8)}},
    ),
    _json("escapes", _FLAT, lambda n: {**_flat(n), "page": f'/p/"{n % 97}"\n\u00e4'}),
    LineShape(
        "text",
        [_field("pad", "string")],
        _text_line(lambda n: f"message {n} ", _RFC5424),
        LineRule(payload="text", field="pad"),
    ),
    _json("JSON without a header", _FLAT, _flat, "free"),
    LineShape(
        "logfmt",
        [*_FLAT, _PAD],
        _text_line(lambda n: f"page=/p/{n % 97} ms={n % 1000} user=u-{n} pad=", _RFC5424),
        LineRule(payload="logfmt"),
    ),
    LineShape(
        "tsv",
        [*_FLAT, _PAD],
        _text_line(lambda n: f"/p/{n % 97}\t{n % 1000}\tu-{n}\t", _RFC5424),
        LineRule(payload="tsv", columns=["page", "ms", "user", "pad"]),
    ),
    LineShape(
        "pattern",
        [*_FLAT, _PAD],
        _text_line(lambda n: f"{_STAMP[:-1]} /p/{n % 97} {n % 1000} u-{n} ", ""),
        _SPLIT,
        "free",
    ),
    LineShape(
        "syslog",
        [],
        _text_line(
            lambda n: f"Nov 21 01:40:{n % 60:02} web-1 sshd[{n % 30000}]: Accepted for u-{n} ", ""
        ),
        format="syslog",
    ),
)


def measure(lines: int = 3000, rounds: int = 7) -> list[dict[str, Any]]:
    """Measure all shapes in turn.

    Returns:
        For each shape the median CPU time per event in microseconds and its ratio to the flat
        object.
    """
    prepared = {shape.name: _prepared(shape, lines) for shape in SHAPES}
    taken: dict[str, list[float]] = {name: [] for name in prepared}
    for _ in range(rounds):
        for name, run in prepared.items():
            began = time.process_time()
            run()
            taken[name].append((time.process_time() - began) / lines * 1e6)
    flat = statistics.median(taken[SHAPES[0].name])
    found = []
    for name, run in prepared.items():
        us = statistics.median(taken[name])
        found.append(
            {
                "kind": "shape",
                "shape": name,
                "us": us,
                "ratio_to_flat": us / flat,
                "by_python": run() < 0.99,
            }
        )
    return found


def _prepared(shape: LineShape, lines: int) -> Callable[[], float]:
    """Return a function that parses all lines and returns the share parsed by the native module."""
    rules, body = _rules(shape), b"".join(_line(shape, number) for number in range(lines))
    byte_range = ByteRange(
        host_id="a" * 32,
        file_id="b" * 32,
        generation=0,
        start=0,
        end=len(body),
        observed_at_ms=_NOW_MS,
        rules="1-x",
        zone="UTC",
        source="s",
        path="/var/log/app.log",
        host_name="web-1",
    )

    def run() -> float:
        parser, packed = RangeParser(byte_range, body, rules), 0
        for part in parser.slices():
            packed += sum(
                len(c)
                for some in part.messages.values()
                for c in some.chunks
                if isinstance(c, PackedMessages)
            )
        parser.audit().encode()
        assert (parser.event_count, parser.dead_letter_count) == (lines, 0), (
            f"{shape.name}: {parser.refused}"
        )
        return packed / lines

    run()
    return run


def _rules(shape: LineShape) -> CompiledRules:
    declared = (
        SYSLOG
        if shape.format == "syslog"
        else EventType(name="shape", fields=shape.fields, line=shape.line)
    )
    versions = {
        one.name: TypeVersion(one, number) for number, one in enumerate((declared, DEAD_LETTERS), 1)
    }
    source = Source(name="s", types=[declared.name], format=shape.format)
    return CompiledRules(
        Rules(sequence=1, types=versions, sources={"s": source}, parsing=ParsingSettings())
    )


def _line(shape: LineShape, number: int) -> bytes:
    before, after = shape.parts(number)
    room = LINE_BYTES - 1 - len(before.encode()) - len(after.encode())
    assert room >= 0, f"{shape.name}: a line has no room for its padding"
    return f"{before}{(f'{number * 2654435761 % 2**32:08x}' * (room // 8 + 1))[:room]}{after}\n".encode()
