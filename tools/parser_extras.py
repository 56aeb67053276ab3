"""Inputs of the stored parser results with range properties that are newer than version 0.2.0.

They cover how lines are joined to records, and fields of the source.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from tools.parser_cases import NOW_MS, Case

from hourmark.config.groups import ParsingSettings
from hourmark.records.ranges import encode_range_fields
from hourmark.rules.event_types import DEAD_LETTERS, EventType, LineRule, Source
from hourmark.rules.revision import Rules, TypeVersion

_FIELDS: Final[list[dict[str, Any]]] = [
    {"name": "text", "type": "string"},
    {"name": "team", "type": ["null", "string"], "default": None},
    {"name": "shift", "type": "int", "default": 7},
    {"name": "stream", "type": ["null", "string"], "default": None},
    {"name": "labels", "type": {"type": "map", "values": "string"}, "default": {}},
]
_PATTERN: Final = (
    r"(?s)(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:team=(?P<team>\w+) )?(?P<text>.*)"
)
_TYPES: Final = (
    EventType(name="json", fields=_FIELDS, line=LineRule(time="observed")),
    EventType(
        name="text", fields=_FIELDS, line=LineRule(payload="text", field="text", time="observed")
    ),
    EventType(
        name="logfmt",
        fields=_FIELDS,
        line=LineRule(payload="logfmt", time="observed", unknown="ignore"),
    ),
    EventType(
        name="trace",
        fields=_FIELDS,
        line=LineRule(payload="pattern", pattern=_PATTERN, time_format="%Y-%m-%d %H:%M:%S"),
    ),
    DEAD_LETTERS,
)
_SOURCES: Final = (
    *(Source(name=t.name, types=[t.name], format="free") for t in _TYPES[:-1]),
    Source(name="named", types=["json", "text"]),
    Source(name="caught", types=["json"], catch_all="text"),
)
_RULES: Final = Rules(
    sequence=1,
    types={t.name: TypeVersion(t, n) for n, t in enumerate(_TYPES, 1)},
    sources={s.name: s for s in _SOURCES},
    parsing=ParsingSettings(),
)
REVISIONS: Final = (_RULES,)

_HEADER: Final = b"<134>1 2026-11-21T01:39:58.123456Z h7 app 42 text - "
_LINES: Final = (
    b"  at the top",
    b"2026-11-21 02:39:58 team=own words",
    b"  at x",
    b"",
    b"\r",
    b"2026-11-21 02:39:58 \xe9",
    b"\tat y",
    _HEADER + b"a",
    b" b",
    b'{"text":',
    b' "t"}',
    b"text=t team=own",
    b"\xff\x00",
    b"$x^",
    b"x",
)
_STARTS: Final = (
    r"^\d{4}-",
    r"^(<\d+>|\{)",
    ".",
    r"^\S",
    "$",
    "^$",
    r"\bat\b",
    "x$",
    r"[^x]x",
    r"(?i)TEXT",
    "é",
    r"\x00",
    r"(?s)a.",
    "a*?b",
)
_CRI: Final = (
    b"2026-11-21T01:39:58.123456789Z stdout P one ",
    b"2026-11-21T02:39:59+01:00 stderr F two",
    b"none",
    b"",
    b"2026-11-21T01:39:59.1Z stdout F three",
    b"2026-11-21T01:39:59.1Z stdout F",
    b"2026-11-21T01:39:59.1Z stderr P:tag \xff",
    b"2026-11-21T01:39:59.1Z stderr F:tag end",
    b"2026-13-21T01:39:59Z stdout F x",
    b"2026-11-22T01:39:59Z stdout F x",
    b"2020-11-21T01:39:59Z stdout F x",
    b"2026-11-21T01:39:60Z stdout F x",
    b"2026-11-21T01:39:59Z stdin F x",
    b"2026-11-21T01:39:59.1Z stdout F " + _HEADER + b"a",
    b"2026-11-21T01:39:59.1Z stdout F 2026-11-21 02:39:58 words",
    b"2026-11-21T01:39:59.1Z stdout P unended",
)
_SAID: Final[tuple[dict[str, str], ...]] = (
    {},
    {"team": "pay", "shift": "3", "env": "prød"},
    {"shift": "night", "text": "said", "labels": "x"},
)


def cases() -> Iterator[Case]:
    """Yield all inputs; each has a unique name."""
    made = itertools.chain(_records(), _containers())
    for number, case in enumerate(made, 1):
        yield {**case, "name": f"{case['name']} {number}"}


def _records() -> Iterator[Case]:
    for source, start in itertools.product(_SOURCES, _STARTS):
        yield _range("records", _LINES, source=source.name, record_start=start, start=7)
    for source, said in itertools.product(_SOURCES, _SAID[1:]):
        yield _range("fields", _LINES, source=source.name, fields=encode_range_fields(said))
        yield _range(
            "records with fields",
            _LINES,
            source=source.name,
            fields=encode_range_fields(said),
            record_start=r"^\d{4}-",
        )
    for part in ("chunk", "last-chunk"):
        yield _range("pieces", _LINES, source="text", record_start=r"^\d{4}-", part=part)
    yield _range("of no source", _LINES, source="nowhere", record_start=r"^\d{4}-")
    many = _range("a long record", (), source="text", record_start="^x")
    yield {**many, "body": [["x\n", 1], [" at y\n", 20_000], ["x\n", 2]]}


def _containers() -> Iterator[Case]:
    for source, said in itertools.product(
        (*_SOURCES, Source(name="nowhere", types=["text"])), _SAID
    ):
        yield _range(
            "container",
            _CRI,
            source=source.name,
            format="cri",
            fields=encode_range_fields(said),
            start=7,
        )
    for part in ("chunk", "last-chunk"):
        yield _range("pieces of a container", _CRI, source="text", format="cri", part=part)


def _range(name: str, lines: tuple[bytes, ...], **fields: Any) -> Case:
    body = b"".join(line + b"\n" for line in lines).decode("latin-1")
    return {
        "name": name,
        "rules": _RULES.id,
        "range": {"observed_at_ms": NOW_MS, **fields},
        "body": body,
    }
