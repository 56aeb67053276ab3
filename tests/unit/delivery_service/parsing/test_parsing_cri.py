"""Container logs: what a container wrote on one line is one record, whatever stands in between."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.service.examples import NOW_MS, decoded, range_of
from tests.support.service.harness import Harness, with_service
from tests.unit.delivery_service.parsing.test_parsing_fields import COMPILED, RULES

from hourmark.records.ranges import encode_range_fields
from hourmark_delivery_service.parsing import ParsedRange, parse_range

TIME = dt.datetime(2026, 11, 21, 1, 39, 58, 123000, dt.UTC)
T = b"2026-11-21T01:39:58.123456789Z "
LATER = b"2026-11-21T02:39:59.5+01:00 "
CONTAINER = {"pod": "web-0", "namespace": "shop", "container": "nginx"}


def of(body: bytes, source: str = "text", **more: Any) -> ParsedRange:
    made = range_of(
        body, source, rules=RULES.id, format="cri", fields=encode_range_fields(CONTAINER), **more
    )
    return parse_range(made, body, COMPILED)


def rows(result: ParsedRange) -> list[dict[str, Any]]:
    return [decoded(record, RULES) for record in result.records]


def test_partial_lines_are_joined_by_stream_and_begin_where_the_first_does() -> None:
    body = (
        T
        + b"stdout P one \n"
        + LATER
        + b"stderr P two \n"
        + LATER
        + b"stdout P three \n"
        + LATER
        + b"stderr F four\n"
    )
    start, result = 1000, of(body + LATER + b"stdout F five\n", start=1000)
    err, out = rows(result)
    assert (out["text"], out["position"], out["labels"]["stream"]) == (
        "one three five",
        start,
        "stdout",
    )
    assert (err["text"], err["position"], err["labels"]["stream"]) == (
        "two four",
        start + len(T + b"stdout P one \n"),
        "stderr",
    )
    assert out["event_time"] == TIME, "the runtime's, of its first line: the text has none"
    assert out["labels"] == {**CONTAINER, "stream": "stdout"}
    assert (result.lines, result.events, result.audit.lines) == (2, 2, 2)


def test_a_time_of_its_own_wins_over_the_runtimes() -> None:
    body = T + b"stdout F <1>1 2026-11-21T01:00:00Z h a - text - x\n"
    (row,) = rows(of(body, "named"))
    assert (row["event_time"], row["text"], row["host"]) == (
        dt.datetime(2026, 11, 21, 1, tzinfo=dt.UTC),
        "x",
        "h",
    )
    (caught,) = rows(of(T + b"stdout F no header\n", "named"))
    assert (caught["event_time"], caught["text"]) == (TIME, "no header")


def test_read_again_at_another_time_it_is_the_same_event() -> None:
    body = T + b"stdout F x\n"
    (first,), (again,) = (of(body, observed_at_ms=NOW_MS + n).records for n in (0, 3_600_000))
    assert first.key[:16] == again.key[:16], "which a line without a time elsewhere is not"


@pytest.mark.parametrize(
    ("line", "reason", "raw"),
    [
        (b"no form at all", "not_cri", b"no form at all"),
        (T + b"stdin F x", "not_cri", T + b"stdin F x"),
        (T + b"stdout X x", "not_cri", T + b"stdout X x"),
        (b"2026-13-21T01:39:58Z stdout F x", "bad_timestamp", b"x"),
        (b"1969-12-31T01:39:58Z stdout F x", "bad_timestamp", b"x"),
        (b"2026-11-22T01:39:58Z stdout F x", "future", b"x"),
        (b"2026-11-01T01:39:58Z stdout F x", "too_late", b"x"),
        (T + b"stdout F \xff", "not_utf8", b"\xff"),
    ],
)
def test_what_is_no_record_becomes_a_dead_letter(line: bytes, reason: str, raw: bytes) -> None:
    (letter,) = rows(of(line + b"\n"))
    assert (letter["reason"], letter["raw"]) == (reason, raw)


def test_an_unknown_source_is_told() -> None:
    (letter,) = rows(of(T + b"stdout F x\n", "nowhere"))
    assert letter["reason"] == "unknown_source"


def test_what_has_no_end_in_its_range_is_a_record_as_far_as_it_goes() -> None:
    result = of(T + b"stdout P one \n" + T + b"stderr F two\n" + T + b"stderr P thr\n")
    assert sorted((row["position"], row["text"]) for row in rows(result)) == [
        (0, "one "),
        (45, "two"),
        (89, "thr"),
    ]


def test_texts_without_a_byte_are_blank() -> None:
    result = of(
        T + b"stdout F \n" + T + b"stderr F\n" + b"\n" + T + b"stdout P \n" + T + b"stdout F \r\n"
    )
    assert (result.lines, result.blanks, result.events, result.dead_letters) == (4, 4, 0, 0)


LINES = [
    T + b"stdout P a",
    T + b"stdout F b",
    T + b"stderr P c",
    T + b"stderr F d",
    b"none",
    b"",
    T + b"stdout F ",
    T + b"stderr F \xff",
]
SOURCES = st.sampled_from(["text", "json", "named", "nowhere"])


@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=16), SOURCES, st.integers(0, 1 << 40))
def test_every_record_is_one_of_three_and_a_retry_is_the_same(
    lines: list[bytes], source: str, start: int
) -> None:
    body = b"\n".join(lines) + b"\n"
    result = of(body, source, start=start)
    assert result == of(body, source, start=start)
    assert result.lines == result.events + result.dead_letters + result.blanks == result.audit.lines
    assert len({row["position"] for row in rows(result)}) == len(result.records)


@with_service()
async def test_over_http(h: Harness) -> None:
    body = T + b"stdout P a\n" + T + b"stdout F b\n"
    answer = await h.post_range(body, "anything", format="cri")
    assert (answer.status_code, answer.json()["events"]) == (200, 1)
    wrong = await h.post_range(
        body, "anything", format="cri", headers={"Hourmark-Format": "docker"}
    )
    assert (wrong.status_code, wrong.json()["code"]) == (400, "headers")
