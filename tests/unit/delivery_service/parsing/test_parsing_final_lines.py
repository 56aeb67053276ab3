"""A range whose last line has no LF because its file ends there is parsed as if it had one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.service.examples import compiled, parsed, range_of, syslog

from hourmark.records.ranges import Part
from hourmark_delivery_service.parsing import ParsedRange, RangeParser

LINES = [syslog()[:-1], b"words", b"S", b"  at x", b"", b"\r", b"x" * 300, b"\xff"]
BODIES = st.lists(st.sampled_from(LINES), min_size=1, max_size=9).map(b"\n".join)


def outcome(result: ParsedRange) -> tuple[object, ...]:
    keys = [record.key[:16] for record in result.records]
    return result.events, result.dead_letters, result.lines, keys


@pytest.mark.parametrize("record_start", ["", "^S"])
@given(BODIES.filter(lambda body: body != b"" and not body.endswith(b"\n")))
def test_the_result_is_that_of_the_same_bytes_with_a_line_feed(
    record_start: str, body: bytes
) -> None:
    without = parsed(body, "app", record_start=record_start, ending="eof")
    assert outcome(without) == outcome(parsed(body + b"\n", "app", record_start=record_start))


def test_the_last_piece_of_an_over_long_line_is_a_dead_letter() -> None:
    result = parsed(b"the end", "app", part=Part.LAST_CHUNK, ending="eof")
    assert (result.events, result.dead_letters) == (0, 1)


@pytest.mark.parametrize(
    ("body", "ending", "message"),
    [
        (b"line\n", "eof", "has no line feed at its end, this one has"),
        (b"line", "", "ends with a line feed, this one does not"),
    ],
)
def test_an_ending_that_does_not_fit_the_bytes_is_refused(
    body: bytes, ending: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        RangeParser(range_of(body, "app", ending=ending), body, compiled())


@pytest.mark.parametrize(("part", "ending"), [(Part.CHUNK, "eof"), (Part.LINES, "lf")])
def test_an_ending_that_is_not_known_is_no_range(part: Part, ending: str) -> None:
    with pytest.raises(ValueError, match="ending must be eof"):
        range_of(b"line", "app", part=part, ending=ending)
