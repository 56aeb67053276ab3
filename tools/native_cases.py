"""Random types and lines for comparing the native range pass with the Python implementation.

Lines are valid, nearly valid or hostile.
"""

from __future__ import annotations

import contextlib
import json
import random
import string
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from hourmark.config.groups import ParsingSettings
from hourmark.records.ranges import ByteRange
from hourmark.rules.event_types import DEAD_LETTERS, EventType, LineRule, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules, ParsedRange, RangeParser, native

NOW_MS: Final = 1_795_225_200_000
_NAMES: Final = ("a", "b", "user", "ms", "page", "größe", "x" * 40)
_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")
_LOGICAL: Final = (
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("string", "uuid"),
    ("bytes", "decimal"),
    ("string", "nothing"),
)
_WHOLE: Final = (
    0,
    1,
    -1,
    63,
    64,
    -64,
    -65,
    8191,
    8192,
    1 << 24,
    (1 << 24) + 1,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    1 << 53,
    (1 << 53) + 1,
    (1 << 63) - 1,
    -(1 << 63),
    1 << 63,
    (1 << 64) - 1,
    10**17,
    10**18,
    10**19,
    86_399_999,
    NOW_MS,
    NOW_MS * 1000,
)
_NUMBERS: Final = (
    "0.1",
    "1e3",
    "1E+3",
    "1e-7",
    "-0",
    "-0.0",
    "0.0",
    "1.0",
    "3.4028235e38",
    "3.4028236e38",
    "1e400",
    "1e-400",
    "5e-324",
    "2.2250738585072014e-308",
    "2.2250738585072011e-308",
    "0.3333333333333333148296",
    "9007199254740993.0",
    "1e22",
    "1e23",
    "123456789012345678901234567890",
    "0." + "1" * 60,
    "01",
    "1.",
    ".5",
    "1e",
    "+1",
    "NaN",
    "Infinity",
    "1_0",
    "0x10",
)
_TIMES: Final = (
    "2026-11-21T01:39:58Z",
    "2026-11-21T01:39:58.123Z",
    "2026-11-21T01:39:58.123456+02:00",
    "2026-11-21T01:39:58.1234567Z",
    "2026-02-29T00:00:00Z",
    "2024-02-29T23:59:59-23:59",
    "2026-11-21t01:39:58Z",
    "2026-11-21T24:00:00Z",
    "2026-11-21T01:39:60Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "1969-12-31T23:59:59.999999Z",
    "2026-11-21T01:39:58",
    "",
)
_TEXTS: Final = (
    "",
    "a",
    "x" * 130,
    "ä",
    "\u20ac",
    "\U0001f600",
    "\0",
    "\x7f",
    '"',
    "\\",
    "/",
    "\b\f\n\r\t",
    "\xff",
    "\u0100",
    "\u2028",
    "0123abcd-0123-4567-89ab-0123456789ab",
    "0123ABCD-0123-4567-89ab-0123456789ab",
    "0123456789abcdef",
    "\x80" * 16,
    *_TIMES,
)
_SPACES: Final = ("", "", "", " ", "  ", "\t", "\r", "\n"[:0])


class Case(NamedTuple):
    """A random rules revision with one source, and the body of a range."""

    rules: Rules
    body: bytes


class _Types:
    """Generator of random Avro types for one schema."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._named = 0
        self.records: list[str] = []

    def any(self, depth: int) -> Any:
        rng = self._rng
        made = rng.choice(
            ["primitive"] * 4
            + ["logical", "enum", "fixed"]
            + (["array", "map", "record", "union", "union"] if depth else [])
        )
        return getattr(self, f"_{made}")(depth - 1)

    def fields(self, depth: int, count: int) -> list[dict[str, Any]]:
        made = []
        for name in self._rng.sample([n for n in _NAMES if n.isascii()], count):
            field = {"name": name, "type": self.any(depth)}
            if (
                isinstance(field["type"], list)
                and field["type"][0] == "null"
                and self._rng.random() < 0.7
            ):
                field["default"] = None
            elif field["type"] in ("int", "long", "string") and self._rng.random() < 0.3:
                field["default"] = "d" if field["type"] == "string" else 7
            made.append(field)
        return made

    def _primitive(self, _: int) -> Any:
        return self._rng.choice(_PRIMITIVES)

    def _logical(self, _: int) -> Any:
        kind, logical = self._rng.choice(_LOGICAL)
        return {
            "type": kind,
            "logicalType": logical,
            **({"precision": 4} if logical == "decimal" else {}),
        }

    def _enum(self, _: int) -> Any:
        return {
            "type": "enum",
            "name": self._name("E"),
            "symbols": ["A", "B", *(f"S{n}" for n in range(self._rng.choice((0, 70))))],
        }

    def _fixed(self, _: int) -> Any:
        is_uuid = self._rng.random() < 0.4
        size = 16 if is_uuid else self._rng.choice((1, 2, 16))
        return {
            "type": "fixed",
            "name": self._name("F"),
            "size": size,
            **({"logicalType": "uuid"} if is_uuid else {}),
        }

    def _array(self, depth: int) -> Any:
        return {"type": "array", "items": self.any(depth)}

    def _map(self, depth: int) -> Any:
        return {"type": "map", "values": self.any(depth)}

    def _record(self, depth: int) -> Any:
        name = self._name("R")
        fields = self.fields(depth, self._rng.randint(0, 3))
        if self._rng.random() < 0.3:
            fields.append({"name": "again", "type": ["null", name], "default": None})
        return {"type": "record", "name": name, "fields": fields}

    def _union(self, depth: int) -> Any:
        branches = {}
        for _ in range(self._rng.randint(1, 4)):
            branch = self._rng.choice(
                (self._primitive, self._logical, self._enum, self._fixed, self._record, self._map)
            )(depth)
            kind = branch if isinstance(branch, str) else branch["type"]
            branches[branch["name"] if kind in ("record", "enum", "fixed") else kind] = branch
        ordered = list(branches.values())
        if "null" not in branches and self._rng.random() < 0.5:
            ordered.insert(self._rng.choice((0, len(ordered))), "null")
        return ordered

    def _name(self, kind: str) -> str:
        self._named += 1
        return f"{kind}{self._named}"


class _Lines:
    """Generator of random lines for the fields of a type."""

    def __init__(self, rng: random.Random, oddness: float) -> None:
        self._rng = rng
        self._odd = oddness
        self._records: dict[str, Any] = {}

    def payload(self, fields: list[dict[str, Any]]) -> bytes:
        text = self._object({"fields": fields}, 0)
        rng = self._rng
        made = f"{rng.choice(_SPACES)}{text}{rng.choice(_SPACES)}".encode()
        if self._is_odd():
            made = rng.choice(
                (
                    b"\xef\xbb\xbf" + made,
                    made + b"x",
                    made[:-1],
                    b"[]",
                    b"",
                    b"[" * 70,
                    b'{"a":' * 66,
                )
            )
        return made

    def _is_odd(self) -> bool:
        return self._rng.random() < self._odd

    def _value(self, avro_type: Any, depth: int) -> str:
        rng = self._rng
        if self._is_odd():
            return self._any_json(2)
        if isinstance(avro_type, list):
            return self._value(rng.choice(avro_type), depth)
        if isinstance(avro_type, str):
            if avro_type in self._records:
                return self._object(self._records[avro_type], depth + 1) if depth < 5 else "null"
            return self._primitive(avro_type)
        kind = avro_type["type"]
        if kind == "record":
            self._records[avro_type["name"]] = avro_type
            return self._object(avro_type, depth)
        if kind == "array":
            return f"[{','.join(self._value(avro_type['items'], depth) for _ in range(rng.choice((0, 1, 3))))}]"
        if kind == "map":
            names = [rng.choice((*_NAMES, *_TEXTS)) for _ in range(rng.choice((0, 1, 2, 20)))]
            return (
                "{"
                + ",".join(
                    f"{self._string(n)}:{self._value(avro_type['values'], depth)}" for n in names
                )
                + "}"
            )
        if kind == "enum":
            return self._string(rng.choice(avro_type["symbols"]))
        if kind == "fixed":
            text = "".join(chr(rng.randrange(256)) for _ in range(avro_type["size"]))
            return self._string(rng.choice((text, rng.choice(_TEXTS))))
        return self._logical(kind, avro_type["logicalType"])

    def _logical(self, kind: str, logical: str) -> str:
        rng = self._rng
        if logical == "uuid":
            digits = "".join(rng.choice("0123456789abcdef") for _ in range(32))
            return self._string(
                "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
            )
        if logical.startswith("timestamp") and rng.random() < 0.6:
            return self._string(rng.choice(_TIMES))
        return (
            str(rng.randrange(86_400_000))
            if kind in ("int", "long") and rng.random() < 0.7
            else self._primitive(kind)
        )

    def _primitive(self, kind: str) -> str:
        rng = self._rng
        if kind == "null":
            return "null"
        if kind == "boolean":
            return rng.choice(("true", "false"))
        if kind in ("int", "long"):
            return str(rng.choice((rng.randrange(-(1 << 31), 1 << 31), rng.choice(_WHOLE))))
        if kind in ("float", "double"):
            near = repr(rng.uniform(-1, 1) * 10 ** rng.randint(-30, 30))
            return rng.choice((near, near, rng.choice(_NUMBERS), str(rng.choice(_WHOLE))))
        return self._string(
            rng.choice(
                (rng.choice(_TEXTS), "".join(rng.choices(string.printable, k=rng.randrange(20))))
            )
        )

    def _object(self, record: dict[str, Any], depth: int) -> str:
        rng = self._rng
        members = [
            (self._string(field["name"]), self._value(field["type"], depth))
            for field in record["fields"]
            if "default" not in field or rng.random() < 0.6
        ]
        if rng.random() < 0.3:
            rng.shuffle(members)
        if self._is_odd() and members:
            odd = rng.randrange(3)
            if odd == 0:
                members.append(rng.choice(members))
            elif odd == 1:
                members.pop(rng.randrange(len(members)))
            else:
                members.append((self._string(rng.choice(_NAMES)), self._any_json(1)))
        space = rng.choice(_SPACES)
        return (
            "{"
            + ",".join(f"{space}{name}{space}:{space}{value}" for name, value in members)
            + space
            + "}"
        )

    def _any_json(self, depth: int) -> str:
        rng = self._rng
        if depth and rng.random() < 0.3:
            inner = [self._any_json(depth - 1) for _ in range(rng.randrange(3))]
            return (
                f"[{','.join(inner)}]"
                if rng.random() < 0.5
                else "{" + ",".join(f'"k{n}":{v}' for n, v in enumerate(inner)) + "}"
            )
        return rng.choice(
            (
                self._string(rng.choice(_TEXTS)),
                str(rng.choice(_WHOLE)),
                rng.choice(_NUMBERS),
                "true",
                "null",
                "nul",
            )
        )

    def _string(self, text: str) -> str:
        if self._is_odd():
            odd = (
                "\\u00e4",
                "\\ud83d\\ude00",
                "\\ud83d",
                "\\udc00\\ud800",
                "\\u12",
                "\\x",
                "\\",
                "\x01",
                "\\/",
                "\\u0041",
                "\\u0000",
            )
            return f'"{self._rng.choice(odd)}{json.dumps(text)[1:]}'
        return json.dumps(text, ensure_ascii=self._rng.random() < 0.3)


_HEADERS: Final = (
    "<13>1 2026-11-21T01:39:58.123456Z web-1 app 7 {} - ",
    "<0>1 2026-11-21T01:39:58Z - a p {} - ",
    "<191>1 - h a p {} - ",
    '<13>1 2026-11-20T22:39:58.5-03:00 h a p {} [a@1 b="\\]" c="d"][e] ',
    "<192>1 2026-11-21T01:39:58Z h a p {} - ",
    "<013>1 2026-11-21T01:39:58Z h a p {} - ",
    "<13>1 2026-11-21T01:54:59Z h a p {} - ",
    "<13>1 2026-11-21T01:55:01Z h a p {} - ",
    "<13>1 2026-11-01T01:39:58Z h a p {} - ",
    "<13>1 1969-11-21T01:39:58Z h a p {} - ",
    '<13>1 - h a p {} [a b="]"] ',
    "<13>1 2026-11-21T01:39:58.1234567Z h a p {} - ",
    "<13>1 2026-13-21T01:39:58Z h a p {} - ",
    "<1>1 - h a p nobody - ",
    "",
    "<13>1 - " + "h" * 255 + " a p {} - ",
    "<13>1 - " + "h" * 256 + " a p {} - ",
    "<13>2 - h a p {} - ",
    "<13>1 - h  p {} - ",
)


def _header(rng: random.Random, oddness: float) -> str:
    return rng.choice(_HEADERS) if rng.random() < 2 * oddness else rng.choice(_HEADERS[:4])


def altered(rng: random.Random, text: bytes) -> bytes:
    """Return `text` with up to three random bytes or pieces replaced, removed or inserted."""
    made = bytearray(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(made) + 1)
        made[at : at + rng.randrange(3)] = rng.choice(
            (rng.randbytes(rng.randrange(3)), b'"', b"\\", b"{", b"]", b",", b"0")
        )
    return bytes(made)


def random_case(rng: random.Random) -> Case:
    """Return a random case with a JSON type, a text type and lines.

    In some cases most lines fit their type, in the others most do not.
    """
    fields: list[dict[str, Any]] = []
    while not fields:
        with contextlib.suppress(ValueError):  # some are no schema, such as a union of two alike
            fields = _Types(rng).fields(rng.randint(0, 3), rng.randint(1, 5))
            json_type = EventType(
                name="j", fields=fields, line=LineRule(time=rng.choice(("event", "observed")))
            )
    text_fields = rng.choice(
        ("string", "bytes", ["null", "string"], ["string", "bytes"], ["bytes", "null"], "int")
    )
    text_type = EventType(
        name="t-ext",
        fields=[
            {"name": "n", "type": ["null", "int"], "default": None},
            {"name": "text", "type": text_fields},
        ],
        line=LineRule(payload="text", field="text", time="observed"),
    )
    types = (json_type, text_type, DEAD_LETTERS)
    versions = {t.name: TypeVersion(t, number) for number, t in enumerate(types, 1)}
    source = Source(
        name="app", types=["j", "t-ext"], catch_all="t-ext" if rng.random() < 0.2 else None
    )
    parsing = ParsingSettings(bucket_seconds=rng.choice((60, 3600)))
    oddness = rng.choice((0, 0, 0.01, 0.1))
    body = b"".join(
        _line(rng, fields, oddness).replace(b"\n", b" ") + b"\n"
        for _ in range(rng.choice((1, 8, 40)))
    )
    return Case(Rules(sequence=1, types=versions, sources={"app": source}, parsing=parsing), body)


def _line(rng: random.Random, fields: list[dict[str, Any]], oddness: float) -> bytes:
    if rng.random() < 0.2:
        text = rng.choice(
            (
                b"words",
                b"\xff\x00",
                "größer".encode(),
                b"\xef\xbb\xbfwords",
                b"12",
                b"\xed\xa0\x80",
                b"",
            )
        )
        line = _header(rng, oddness).format("t-ext").encode() + text
    else:
        line = _header(rng, oddness).format("j").encode() + _Lines(rng, oddness).payload(fields)
    return altered(rng, line) if rng.random() < oddness else line


def range_of(case: Case) -> ByteRange:
    """Return the body of a case as a byte range."""
    return ByteRange(
        host_id="0123456789abcdef" * 2,
        file_id="fedcba9876543210" * 2,
        generation=3,
        start=1 << 33,
        end=(1 << 33) + len(case.body),
        observed_at_ms=NOW_MS,
        rules=case.rules.id,
        zone="UTC",
        source="app",
        path="/var/log/app.log",
        host_name="web-1",
    )


@contextlib.contextmanager
def python_alone() -> Iterator[None]:
    """Disable the native module within a `with` block, as if it were not installed."""
    module, native.MODULE = native.MODULE, None
    try:
        yield
    finally:
        native.MODULE = module


def parsed(case: Case, rules: CompiledRules) -> tuple[ParsedRange, dict[str, int]]:
    """Parse the range of a case.

    Returns:
        The parsing result, and the number of dead letters by reason.
    """
    parser = RangeParser(range_of(case), case.body, rules)
    return parser.parse_all(), dict(parser.reasons)


def difference(case: Case) -> str:
    """Parse a case with both implementations and describe how the results differ.

    Returns:
        A description, or an empty string if the results are equal.
    """
    with_it = parsed(case, CompiledRules(case.rules))
    with python_alone():
        without = parsed(case, CompiledRules(case.rules))
    if with_it == without:
        return ""
    lines = case.body.split(b"\n")
    for line, a, b in zip(lines, with_it[0].records, without[0].records, strict=False):
        if a != b:
            return (
                f"{line!r} becomes\n{a} in C and\n{b} in Python, by {case.rules.types['j'].schema}"
            )
    return (
        f"the sums or counts of {lines!r}: {with_it[0].audit} and {without[0].audit}, "
        f"{with_it[1]} and {without[1]}"
    )
