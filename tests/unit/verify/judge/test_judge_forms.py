"""The judge's own reading of syslog as it comes, logfmt, columns and JSON lines agrees with the
service's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.verify.judge.test_judge_values import compare
from tools.parser_forms import FORM_LINES, FORM_SOURCES, FORM_TYPES

from hourmark.avro.framing import event_schema
from hourmark.rules.event_types import EventType, Source
from hourmark_verify.judge.expectations import TypeExpectation

NEVER = {"form-json", "form-redacted"}  # coerces, redacts: the judge is told neither
CONTENT = {
    "json": "json",
    "text": "msg-bytes",
    "pattern": "raw-line",
    "logfmt": "logfmt",
    "tsv": "tsv",
}
TYPES = {t.name: t for t in FORM_TYPES if t.name not in NEVER}
SOURCES = {s.name: s for s in FORM_SOURCES if not NEVER & {*s.types}}
_TIMES = {
    b"2026": b"2025",
    b"Nov 21 02:": b"Nov 21 00:",
    b"T02:00:00": b"T00:00:09",
    b"T01:00:00": b"T00:00:09",
    b"T01:30:00": b"T00:00:09",
    b":01:30:00 +": b":00:00:09 +",
    b"17952252": b"17636832",
}


def moved(line: bytes) -> bytes:
    """As the vectors have it, to the time at which the judged world is read."""
    for time, other in _TIMES.items():
        line = line.replace(time, other)
    return line


LINES = {
    name: [moved(line) for line in lines] for name, lines in FORM_LINES.items() if name in SOURCES
}


def told_of(declared: EventType) -> dict[str, Any]:
    rule = declared.line.model_dump(exclude={"payload"}, exclude_none=True)
    return {**rule, "content": CONTENT[declared.line.payload]}


def read_alike(folder: Path, source: Source, line: bytes) -> str:
    types = [TYPES[name] for name in source.types]
    schemas = {t.name: event_schema(t.name, t.fields) for t in types}
    told = {t.name: told_of(t) for t in types}
    return compare(
        folder, line, schemas, told, form=source.format, type=source.types, hosts=source.host
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_the_lines_that_vectors_are_kept_for_are_read_alike(tmp_path: Path, name: str) -> None:
    read = [
        read_alike(tmp_path / str(at), SOURCES[name], line)
        for at, line in enumerate(LINES.get(name, [b"x"]))
        if line
    ]
    assert len(set(read)) > 1 or name not in LINES or name in ("form-system-here", "form-strict"), (
        "events and dead letters"
    )


@pytest.mark.parametrize("before", [b"!", b"x", b"-"])
def test_a_time_that_begins_as_none_is_none_to_the_judge_too(tmp_path: Path, before: bytes) -> None:
    for name, lines in LINES.items():
        for at, line in enumerate(line for line in lines if b" 2025-" in line):
            read_alike(
                tmp_path / f"{name}-{at}",
                SOURCES[name],
                line.replace(b" 2025-", b" " + before + b"2025-", 1),
            )


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    name = draw(st.sampled_from(sorted(LINES)))
    line = bytearray(
        draw(st.sampled_from([line for line in LINES[name] if line and len(line) < 200]))
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(line)))
        line[at : at + draw(st.integers(0, 2))] = draw(
            st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b"]", b":", b" ", b"["])
        )
    return name, bytes(line).replace(b"\n", b" ").replace(
        b"\v", b" "
    )  # Python's \s, of which RE2 thinks otherwise


@pytest.mark.slow
@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(mutated())
def test_any_such_line_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[str, bytes]
) -> None:
    name, line = case
    if line.strip(b"\r"):
        read_alike(tmp_path_factory.mktemp("w"), SOURCES[name], line)


def test_what_the_judge_does_not_read_it_refuses() -> None:
    for name in NEVER:
        (declared,) = (t for t in FORM_TYPES if t.name == name)
        with pytest.raises(ValueError, match="Extra inputs are not permitted"):
            TypeExpectation.model_validate({**told_of(declared), "fields": declared.fields})
