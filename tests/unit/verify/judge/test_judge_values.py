"""The judge's own reading of lines agrees with the service's: the same values, the same dead
letters, type by type.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.judged.world import MINUTE, SCHEMAS, START_MS, TYPES, World, rfc5424
from tests.unit.verify.judge.values_of_types import VALUES

from hourmark.avro.framing import event_schema
from hourmark.records.ranges import Part
from hourmark_verify.judge.expectations import Expectations
from hourmark_verify.judge.line_interpreter import LineInterpreter
from hourmark_verify.judge.values import equal_values

_HEADER = b"<134>1 2025-11-21T00:00:25Z h a - "


def compare(
    folder: Path, line: bytes, schemas: dict[str, Any], types: dict[str, Any], **told: Any
) -> str:
    """What both say of a line; its type. AssertionError where they differ."""
    world = World(folder, {**SCHEMAS, **schemas}, {**TYPES, **types})
    path = world.source("a.log", line + b"\n", **told)
    ((event_type, row),) = world.parse(path, 0, len(line) + 1, START_MS + MINUTE, Part.LINES)
    said = Expectations.model_validate(world.expectations())
    expected = LineInterpreter(said, said.types).interpret(
        said.files[0], line, "lines", (row["event_time"], row["event_time"])
    )
    assert expected.type == event_type, (line, expected, row)
    assert (expected.time_ms or START_MS + MINUTE) == row[
        "event_time"
    ] or event_type == "dead-letters"
    assert (expected.host or "host") == row["host"]
    for name, value in expected.fields.items():
        assert equal_values(value, row[name]), (line, name, value, row[name])
    assert expected.detail in row.get("detail", "")
    return event_type


def payload(folder: Path, avro: Any, text: str) -> str:
    """The same of a JSON payload whose field `v` is of this type."""
    schemas = {"j": event_schema("j", [{"name": "v", "type": copy.deepcopy(avro)}])}
    return compare(
        folder, _HEADER + f'j - {{"v": {text}}}'.encode(), schemas, {"j": {"content": "json"}}
    )


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_are_read_alike(tmp_path: Path, name: str) -> None:
    avro, right, wrong = VALUES[name]
    for number, text in enumerate(right):
        assert payload(tmp_path / f"r{number}", avro, text) == "j", text
    for number, text in enumerate(wrong):
        assert payload(tmp_path / f"w{number}", avro, text) == "dead-letters", text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    st.sampled_from(sorted(VALUES)),
    _JSON | st.sampled_from(["NaN", "1e400", "-0e0", "[" * 70 + "]" * 70]),
)
def test_any_value_of_any_type_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: Any
) -> None:
    text = (
        value if isinstance(value, str) and value[:1] in ("N", "[", "1", "-") else json.dumps(value)
    )
    payload(tmp_path_factory.mktemp("w"), VALUES[name][0], text)


_MESSAGES = [
    b'{"track": "t", "ms": 1}',
    b'\xef\xbb\xbf{"track": "t", "ms": 1}',
    b'{"track": "t", "ms": 1, "ms": 2}',
    b'{"ms": 1}',
    b"{no",
    b'{"track": "t", "ms": 1, "b": 2, "a": 3}',
    b'{"track": "\xff", "ms": 1}',
    b"\xff",
    b"[1]",
    b"",
    b'{"track": "t", "ms": 1} \r',
    b'{"track": "\x01", "ms": 1}',
    b'{"track": 1, "ms": "x"}',
]
_TIMES = [
    "-",
    "2025-11-21T00:00:25Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00",
    "2025-13-01T00:00:00Z",
    "now",
    "2025-11-21T00:16:00.001Z",
    "2025-11-21T00:16:00Z",
    "2025-11-14T00:01:00Z",
    "2025-11-14T00:00:59.999Z",
]


@pytest.mark.parametrize("msgid", ["track-played", "lines", "no-such"])
def test_whole_lines_are_read_alike(tmp_path: Path, msgid: str) -> None:
    lines = [rfc5424(msgid, START_MS, message) for message in _MESSAGES]
    lines += [
        f'<1>1 {time} - a - {msgid} [x] {{"track": "t", "ms": 1}}'.encode() for time in _TIMES
    ]
    lines += [b" ", b"Jan 1 old"]
    for number, line in enumerate(lines):
        compare(tmp_path / str(number), line, {}, {})
        compare(tmp_path / f"c{number}", line, {}, {}, type="track-played", catch_all="server-log")


PATTERN = {
    "content": "raw-line",
    "field": "line",
    "time_format": "%Y-%m-%d %H:%M:%S,%f",
    "pattern": r"(?P<time>\S+ \S+) (?P<level>[A-Z]+)(?: \[(?P<thread>[^\]]*)\])?(?: (?P<message>.*))?",
}
_FREE = [
    b"2025-11-21 00:00:07,123 INFO hello",
    b"2025-11-21 00:00:07,123 INFO [12] x",
    b"2025-11-21 00:00:07,123 INFO [x] y",
    b"2025-11-41 00:00:07,123 INFO x",
    b"2023-11-21 00:00:07,123 INFO x",
    b"2025-11-21 00:20:07,999 INFO x",
    b"a b C \xff",
    b"\xff",
    b"no time",
    b"2025-11-21 00:00:07,123 INFO \xff",
    b"2025-11-21 00:00:07,123 INFO [+5] ",
]


@pytest.mark.parametrize(
    "message", ["string", "bytes", ["null", "string"], "boolean", ["null", "double"]]
)
def test_patterns_are_read_alike(tmp_path: Path, message: Any) -> None:
    fields: list[dict[str, Any]] = [
        {"name": "line", "type": "bytes"},
        {"name": "level", "type": ["null", "string"], "default": None},
        {"name": "thread", "type": ["null", "long"], "default": None},
        {"name": "message", "type": message},
    ]
    schemas = {"log": event_schema("log", fields)}
    for number, line in enumerate(
        (*_FREE, b"2025-11-21 00:00:07,5 X true", b"2025-11-21 00:00:07,5 X -1.5e3")
    ):
        for catch_all in (None, "server-log"):
            folder = tmp_path / f"{number}{catch_all}"
            compare(
                folder,
                line,
                schemas,
                {"log": PATTERN},
                form="free",
                type="log",
                catch_all=catch_all,
            )
