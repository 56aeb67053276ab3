"""Inputs of the stored parser results: ordinary lines, and lines that libraries may parse
otherwise.

Cases can be added at any time: the stored vectors of a parser number contain their own inputs.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any, Final

from tools.keep_zone_data import installed_zones
from tools.parser_forms import FORM_LINES, FORM_SOURCES, FORM_TYPES
from tools.parser_texts import (
    BATCH_LINES,
    JSON_OBJECTS,
    JSON_VALUES,
    LOCAL_TIMES,
    MATCHED,
    NO_TIMES,
    NUMBERS,
    PATTERNS,
    SYSLOG_LINES,
    TEXTS,
    TIMES,
)

from hourmark.config.groups import ParsingSettings
from hourmark.rules.event_types import DEAD_LETTERS, EventType, LineRule, Source
from hourmark.rules.revision import Rules, TypeVersion

Case = dict[str, Any]

NOW_MS: Final = 1_795_225_200_000  # 2026-11-21T01:40:00Z
_AFTER_ALL_MS: Final = 4_133_980_800_000  # 2101-01-01

# What a case's range does not say of itself.
RANGES: Final[Case] = {
    "host_id": "0123456789abcdef" * 2,
    "file_id": "fedcba9876543210" * 2,
    "generation": 0,
    "start": 0,
    "observed_at_ms": NOW_MS,
    "zones": ["Europe/Berlin"],
    "source": "app",
    "path": "/var/log/app.log",
    "host_name": "web-1",
    "part": "lines",
}

_TREE: Final = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "value", "type": "long"},
        {"name": "text", "type": "string", "default": "x" * 1000},
        {"name": "next", "type": ["null", "Tree"], "default": None},
    ],
}
_AVRO_TYPES: Final[dict[str, Any]] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "fixed": {"type": "fixed", "name": "Four", "size": 4},
    "enum": {"type": "enum", "name": "Colour", "symbols": ["red", "green"]},
    "array": {"type": "array", "items": ["null", "long", "string"]},
    "map": {"type": "map", "values": "double"},
    "tree": _TREE,
    "trees": {"type": "array", "items": "Tree"},
    "date": {"type": "int", "logicalType": "date"},
    "time_ms": {"type": "int", "logicalType": "time-millis"},
    "time_us": {"type": "long", "logicalType": "time-micros"},
    "at_ms": {"type": "long", "logicalType": "timestamp-millis"},
    "at_us": {"type": "long", "logicalType": "timestamp-micros"},
    "local_ms": {"type": "long", "logicalType": "local-timestamp-millis"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "uuid16": {"type": "fixed", "name": "Uuid", "size": 16, "logicalType": "uuid"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
}


def _nullable(name: str, avro_type: Any) -> Case:
    return {"name": name, "type": ["null", avro_type], "default": None}


def _text(name: str, avro_type: Any) -> EventType:
    return EventType(
        name=name,
        fields=[{"name": "v", "type": avro_type}],
        line=LineRule(payload="text", field="v", time="observed"),
    )


def _free(
    name: str, pattern: str, fields: list[str | Case], time_format: str | None = None
) -> EventType:
    rule = LineRule(
        payload="pattern",
        pattern=pattern,
        time_format=time_format,
        time="event" if time_format else "observed",
    )
    return EventType(
        name=name,
        fields=[
            f if isinstance(f, dict) else {"name": f, "type": ["null", "bytes"]} for f in fields
        ],
        line=rule,
    )


_JSON: Final = (
    EventType(
        name="click",
        fields=[
            {"name": "user", "type": "string"},
            {"name": "ms", "type": "long"},
            _nullable("ref", "string"),
        ],
    ),
    EventType(
        name="values",
        fields=[_nullable(name, avro_type) for name, avro_type in _AVRO_TYPES.items()],
        line=LineRule(time="observed"),
    ),
    EventType(
        name="defaults",
        fields=[
            {"name": "n", "type": "double", "default": -0.0},
            {"name": "s", "type": ["string", "null"], "default": "é\U0001f600"},
            {"name": "u", "type": ["long", "double", "string", "boolean"], "default": 0},
        ],
        line=LineRule(time="observed"),
    ),
)
_TEXT: Final = (
    EventType(
        name="raw",
        fields=[{"name": "line", "type": "bytes"}, _nullable("level", "string")],
        line=LineRule(payload="text", field="line", time="observed"),
    ),
    *(
        _text(f"text-{name.replace('_', '-')}", _AVRO_TYPES[name])
        for name in (
            "string",
            "int",
            "long",
            "float",
            "double",
            "boolean",
            "enum",
            "at_us",
            "uuid",
            "map",
        )
    ),
    _text(
        "text-union",
        ["null", "long", {"type": "enum", "name": "C", "symbols": ["a", "b"]}, "string"],
    ),
)
_TIMED: Final = tuple(
    _free(f"timed-{at}", r"(?P<time>.*) \| (?P<m>.*)", ["m"], time_format)
    for at, time_format in enumerate([*LOCAL_TIMES, "%Q unknown"])
)
_MATCHED: Final = tuple(
    _free(f"matched-{at}", pattern, ["a", "b"]) for at, pattern in enumerate(PATTERNS)
)
_SERVER: Final = _free(
    "server",
    r"(?P<time>\d{4}-\S+ [0-9:,]+) (?P<level>[A-Z]+)(?: \[t(?P<thread>\d+)\])? (?P<message>.*)",
    [
        {"name": "level", "type": "string"},
        _nullable("thread", "int"),
        {"name": "message", "type": "bytes"},
    ],
    "%Y-%m-%d %H:%M:%S,%f",
)
_TYPES: Final = (*_JSON, *_TEXT, *_TIMED, *_MATCHED, _SERVER, *FORM_TYPES)
_SOURCES: Final = (
    Source(name="app", types=[t.name for t in (*_JSON, *_TEXT)]),
    Source(name="caught", types=["click"], catch_all="raw"),
    Source(name="servers", format="free", types=["server"]),
    Source(name="anything", format="free", types=["server", "matched-0"], catch_all="raw"),
    *(Source(name=t.name, format="free", types=[t.name]) for t in (*_TIMED, *_MATCHED)),
    *FORM_SOURCES,
)


def _revision(sequence: int, parsing: ParsingSettings, dead_letters: TypeVersion) -> Rules:
    versions = {t.name: TypeVersion(t, schema_id) for schema_id, t in enumerate(_TYPES, 1)}
    return Rules(
        sequence=sequence,
        types={**versions, DEAD_LETTERS.name: dead_letters},
        sources={s.name: s for s in _SOURCES},
        parsing=parsing,
    )


_OURS: Final = TypeVersion(DEAD_LETTERS, len(_TYPES) + 1)
_OTHERS: Final = TypeVersion(
    DEAD_LETTERS.model_copy(
        update={
            "fields": [
                {"name": "tenant", "type": "string", "default": "none"},
                *DEAD_LETTERS.fields[1:-1],
            ]
        }
    ),
    len(_TYPES) + 2,
)
USUAL: Final = _revision(1, ParsingSettings(), _OURS)
ALL_TIMES: Final = _revision(
    2, ParsingSettings(lateness_seconds=200 * 366 * 86_400, bucket_seconds=60), _OURS
)
OTHER: Final = _revision(3, ParsingSettings(lateness_seconds=60, future_seconds=0), _OTHERS)
REVISIONS: Final = (USUAL, ALL_TIMES, OTHER)


def cases() -> Iterator[Case]:
    """Yield all inputs; each has a unique name."""
    numbers: dict[str, Iterator[int]] = {}
    for case in itertools.chain(
        _syslog(),
        _json(),
        _texts(),
        _patterns(),
        _times(),
        _zones(),
        _mutated(),
        _batches(),
        _ranges(),
        _blanks(),
        _forms(),
    ):
        number = next(numbers.setdefault(case["name"], itertools.count(1)))
        yield {**case, "name": f"{case['name']} {number}"}


def _range(name: str, lines: list[bytes], rules: Rules = USUAL, **fields: Any) -> Case:
    return {
        "name": name,
        "rules": rules.id,
        "range": fields,
        "body": b"".join(line + b"\n" for line in lines).decode("latin-1"),
    }


def _line(msgid: str, msg: bytes, time: str = "2026-11-21T01:39:58.123456Z") -> bytes:
    return f"<134>1 {time} h7 app 42 {msgid} - ".encode() + msg


def _short(msgid: str, msg: bytes) -> bytes:
    return f"<1>1 - - - - {msgid} - ".encode() + msg


def _syslog() -> Iterator[Case]:
    for line, source in itertools.product(SYSLOG_LINES, ("app", "caught")):
        yield _range("syslog", [line], source=source)
    for rules in REVISIONS:
        yield _range(
            "rfc3339",
            [_line("click", b'{"user":"u","ms":1}', time) for time in TIMES],
            rules,
            observed_at_ms=NOW_MS,
        )
    yield _range(
        "rfc3339 of all years",
        [_line("raw", b"", time) for time in TIMES],
        ALL_TIMES,
        observed_at_ms=_AFTER_ALL_MS,
    )


def _json() -> Iterator[Case]:
    for payload in JSON_OBJECTS:
        yield _range("json", [_line(msgid, payload) for msgid in ("click", "defaults")])
    for name in _AVRO_TYPES:
        yield _range(
            f"json {name}",
            [_short("values", b'{"%s":%s}' % (name.encode(), value)) for value in JSON_VALUES],
        )
    for group in _batched(NUMBERS, 40):
        lines = [
            _short("values", b'{"float":%s,"double":%s}' % (number, number)) for number in group
        ]
        yield _range(
            "json numbers",
            lines + [_short("defaults", b'{"n":%s,"u":%s}' % (number, number)) for number in group],
        )
    large: Case = _range(
        "json that grows", [_short("values", b'{"trees":[{"value":1}@{"value":2}]}')]
    )
    head, tail = large["body"].split("@")
    yield {**large, "body": [[head, 1], [',{"value":3}', 6400], [",", 1], [tail, 1]]}


def _batched(values: list[bytes], size: int) -> Iterator[list[bytes]]:
    for at in range(0, len(values), size):
        yield values[at : at + size]


def _texts() -> Iterator[Case]:
    for kind in _TEXT:
        yield _range(
            f"text of {kind.name}", [_short(kind.name, text) for text in [*TEXTS, *NUMBERS]]
        )


def _patterns() -> Iterator[Case]:
    for kind in _MATCHED:
        yield _range("pattern", MATCHED, source=kind.name)
    yield _range("patterns in order", MATCHED, source="anything")


def _times() -> Iterator[Case]:
    moments_ms = (0, 951_782_400_000, 1_792_893_600_000, 1_772_953_200_000, 7_258_118_400_000)
    zones = ["Europe/Berlin", "America/New_York", "Nowhere/City"]
    for kind, (rules, observed_at_ms) in itertools.product(
        _TIMED, ((USUAL, NOW_MS), *((ALL_TIMES, ms) for ms in moments_ms))
    ):
        texts = LOCAL_TIMES.get(kind.line.time_format or "", [])
        lines = [text + b" | m" for text in [*texts, *NO_TIMES]]
        yield _range(
            f"times of {kind.name}",
            lines,
            rules,
            source=kind.name,
            observed_at_ms=observed_at_ms,
            zones=zones,
        )


def _zones() -> Iterator[Case]:
    """Yield one case for each distinct time zone content, grouped by area."""
    distinct = {data: name for name, data in reversed(installed_zones().items())}
    lines = [f"{time} | m".encode() for time in ZONED_TIMES]
    for area, names in itertools.groupby(
        sorted(distinct.values()), key=lambda name: name.partition("/")[0]
    ):
        yield _range(
            f"zones {area}",
            lines,
            ALL_TIMES,
            source="timed-0",
            observed_at_ms=_AFTER_ALL_MS,
            zones=list(names),
        )


# On both sides of changes of the clocks in many countries, of rules that were changed, and where
# only a zone's last rule counts.
ZONED_TIMES: Final = (
    "1970-06-01 12:00:00",
    "1985-03-31 02:30:00",
    "1996-10-27 01:30:00",
    "2007-03-25 02:30:00",
    "2010-11-07 01:30:00",
    "2020-07-01 00:00:00",
    "2024-10-06 00:30:00",
    "2026-07-01 08:30:00",
    "2037-12-31 23:00:00",
    "2050-07-01 00:00:00",
)


def _mutated() -> Iterator[Case]:
    """Yield valid lines with a few changed bytes."""
    chance = random.Random(20261122)
    good = [
        *((source, line) for line in SYSLOG_LINES[:4] for source in ("app", "caught")),
        *(
            (source, b"2026-11-21 02:39:58,123 INFO [t7] started")
            for source in ("servers", "anything")
        ),
        *(
            (f"timed-{at}", time + b" | m")
            for at, times in enumerate(LOCAL_TIMES.values())
            for time in times[:1]
        ),
    ]
    for source, line in good:
        yield _range(
            f"mutated {source}", [_mutation(line, chance) for _ in range(24)], source=source
        )


def _mutation(line: bytes, chance: random.Random) -> bytes:
    changed = bytearray(line)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed) + 1)
        changed[at : at + chance.randrange(3)] = bytes(
            chance.choice(b' -:.,"{}[]<>019\\\xc3\xff\x00zZ') for _ in range(chance.randrange(3))
        )
    return bytes(changed).replace(b"\n", b" ")


def _batches() -> Iterator[Case]:
    for at, (lines, event_type) in enumerate(
        itertools.product(BATCH_LINES, ("click", "defaults", "raw"))
    ):
        batch = {
            "event_type": event_type,
            "client": ("shop", "café \U0001f600")[at % 2],
            "key": f"order-{at}",
            "observed_at_ms": NOW_MS,
        }
        rules = REVISIONS[at % 3]
        yield {"name": "batch", "rules": rules.id, "batch": batch, "body": lines.decode("latin-1")}


def _forms() -> Iterator[Case]:
    # One line for each case, so that a difference names the line.
    chance = random.Random(20261123)
    for source, lines in FORM_LINES.items():
        for line in lines:
            yield _range(source, [line], source=source)
        yield _range(
            f"mutated {source}",
            [_mutation(line, chance) for line in lines[:8] for _ in range(4)],
            source=source,
        )


def _ranges() -> Iterator[Case]:
    """Yield ranges that vary in every other property of a range."""
    line = _line("click", b'{"user":"u","ms":1}')
    for fields in (
        {"start": (1 << 40) + 7, "generation": 3},
        {"host_id": "f" * 32, "file_id": "0" * 32},
        {"part": "chunk"},
        {"part": "last-chunk"},
        {"observed_at_ms": NOW_MS + 3_600_000},
        {"observed_at_ms": 0},
        {"observed_at_ms": 221_845_391_999_999},
        {"source": "nowhere"},
        {"source": "a\udcffb"},
        {"host_name": "wëb-\U0001f600"},
        {"host_name": "h\udcff\udcc3"},
        {"path": "/p\udcff\udce2\udc82/ü"},
    ):
        yield _range("range", [line, b"", b"no syslog", line], **fields)
    many = _range("many lines", [line, b"\xff", _line("raw", b"\x00\xff")])
    yield {**many, "body": [[many["body"], 100]]}
    yield {
        **_range("long line", []),
        "body": [["x", (4 << 20) + 1], ["\n", 1], [line.decode() + "\n", 2]],
    }
    yield _range("other dead letters", [b"", b"\xff", json.dumps({"ä": 1}).encode(), line], OTHER)


def _blanks() -> Iterator[Case]:
    """Yield lines that consist of carriage returns only, and lines that almost do."""
    line, event = _line("click", b'{"user":"u","ms":1}'), b'{"user":"u","ms":1}'
    nearly = [
        b"",
        b"\r",
        b"\r\r",
        b" ",
        b"\t",
        b"\r \r",
        b"\x00",
        b"\x0b",
        b"\x0c",
        b"\xc2\x85",
        b"\r\rx",
        b"x\r",
    ]
    for source in ("app", "caught", "anything", "nowhere"):
        yield _range(
            "blank lines", [b"", b"\r", line, *nearly, line, b"\r"], source=source, start=7
        )
        yield _range("nothing but blank lines", [b"", b"\r"], source=source)
    yield {
        **_range("many blank lines", []),
        "body": [["\n", 40_000], ["\r\n", 20_000], ["\r", 20_000], ["\n", 1]],
    }
    batch = {"event_type": "click", "client": "shop", "key": "blanks", "observed_at_ms": NOW_MS}
    for end in (b"", b"\n", b"\r", b"\n\r\n"):
        body = b"\n".join([b"", event, *nearly, event])
        yield {
            "name": "batch with blank lines",
            "rules": USUAL.id,
            "batch": batch,
            "body": (body + end).decode("latin-1"),
        }
    for body in (b"\n", b"\r", b"\r\n\n"):
        yield {
            "name": "batch of blank lines",
            "rules": USUAL.id,
            "batch": batch,
            "body": body.decode("latin-1"),
        }
