"""Records of more than one line: what becomes of them follows from the range alone."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.service.examples import compiled, decoded, parsed, range_of, syslog
from tests.support.service.harness import Harness, with_service

from hourmark.records.ranges import Part
from hourmark_delivery_service.parsing import ParsedRecord, RangeParser

START = r"^(<\d|\d{4}-|S)"
LINES = [
    syslog()[:-1],
    b"2026-11-21 02:39:58,123 INFO [t1] words",
    b"S",
    b"  at x",
    b"",
    b"\r",
    b"}",
    b"x" * 300,
]
BODIES = st.lists(st.sampled_from(LINES), min_size=1, max_size=14).map(
    lambda lines: b"\n".join(lines) + b"\n"
)


def records_of(body: bytes) -> list[tuple[int, bytes]]:
    """By a look at each line: where they begin, and their bytes without the last LF."""
    found: list[tuple[int, bytes]] = []
    at = 0
    for line in body.split(b"\n")[:-1]:
        if not found or line[:1] in (b"<", b"S") or line[:4] == b"2026":
            found.append((at, line))
        else:
            found[-1] = (found[-1][0], found[-1][1] + b"\n" + line)
        at += len(line) + 1
    return found


def ids(records: tuple[ParsedRecord, ...]) -> list[bytes]:
    return [record.key[:16] for record in records]


@given(
    BODIES,
    st.sampled_from(["app", "caught", "servers", "anything", "nowhere"]),
    st.integers(0, 1 << 40),
)
def test_every_record_is_one_of_three_and_a_retry_is_the_same(
    body: bytes, source: str, start: int
) -> None:
    result = parsed(body, source, start=start, record_start=START)
    assert result == parsed(body, source, start=start, record_start=START)
    expected = records_of(body)
    assert (
        result.lines
        == result.events + result.dead_letters + result.blanks
        == result.audit.lines
        == len(expected)
    )
    full = [(at, record) for at, record in expected if record.strip(b"\r\n")]
    assert result.blanks == len(expected) - len(full)
    for (at, raw), record in zip(full, result.records, strict=True):
        row = decoded(record)
        assert row["position"] == start + at
        assert raw == (row["raw"] if record.event_type == "dead-letters" else row.get("line", raw))


@given(BODIES, BODIES, st.integers(0, 1 << 40))
def test_cut_at_a_record_or_not_the_ids_are_the_same(
    first: bytes, second: bytes, start: int
) -> None:
    second = b"S" + second
    whole = parsed(first + second, "anything", start=start, record_start=START)
    apart = parsed(first, "anything", start=start, record_start=START)
    rest = parsed(second, "anything", start=start + len(first), record_start=START)
    assert ids(whole.records) == ids(apart.records) + ids(rest.records)
    assert whole.blanks == apart.blanks + rest.blanks


@given(BODIES)
def test_in_whatever_slices_it_is_the_same(body: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hourmark.records.record_start.STEP_BYTES", 7)
        patch.setattr("hourmark_delivery_service.parsing.records.SLICE_BYTES", 1)
        slow = parsed(body, "anything", record_start=START)
    assert slow == parsed(body, "anything", record_start=START)


def test_where_each_line_begins_a_record_it_is_as_without() -> None:
    body = syslog() + syslog("note", b"words") + b"broken\n" + syslog()
    of_records, of_lines = parsed(body, record_start=""), parsed(body, record_start=".")
    assert ids(of_records.records) == ids(of_lines.records)
    assert [r.value for r in of_records.records if r.event_type != "dead-letters"] == [
        r.value for r in of_lines.records if r.event_type != "dead-letters"
    ]
    assert of_records.audit.range_id != of_lines.audit.range_id, (
        "what it is read by is part of what it is"
    )


def test_json_over_several_lines_and_a_trace_are_events() -> None:
    body = syslog(msg=b'{"user":\n "u",\n\n "ms": 1}') + syslog(
        "note", b"Traceback:\n  at x\n  at y"
    )
    click, note = (decoded(record) for record in parsed(body, record_start=r"^<\d").records)
    assert (click["user"], click["ms"], note["text"]) == ("u", 1, "Traceback:\n  at x\n  at y")


def test_the_first_line_is_a_record_whatever_it_looks_like() -> None:
    result = parsed(b"  at y\n\n" + syslog(), record_start=r"^<\d")
    letter, event = result.records
    assert (decoded(letter)["raw"], event.event_type) == (b"  at y\n", "click")


def test_pieces_of_a_long_record_are_dead_letters() -> None:
    for part, body in ((Part.CHUNK, b"a\nS\n  b"), (Part.LAST_CHUNK, b"c\n  d\n")):
        (letter,) = parsed(body, part=part, record_start="^S").records
        assert (decoded(letter)["reason"], decoded(letter)["raw"]) == (
            "line_too_long",
            body.removesuffix(b"\n") if part is Part.LAST_CHUNK else body,
        )


def test_a_long_record_does_not_hold_up_what_is_beside_it() -> None:
    body = b"S\n" + b"x\n" * (1 << 20)
    turns = RangeParser(range_of(body, record_start="^S"), body, compiled()).slices()
    began_s, longest_s = time.process_time(), 0.0
    for _ in turns:
        longest_s, began_s = max(longest_s, time.process_time() - began_s), time.process_time()
    assert longest_s < 0.5, "its search goes in steps"


@with_service()
async def test_over_http(h: Harness) -> None:
    body = syslog("note", b"a\n b") + syslog()
    answer = await h.post_range(body, record_start=r"^<\d")
    assert (answer.status_code, answer.json()["events"]) == (200, 2)
    expected = parsed(body, record_start=r"^<\d")
    assert {(r.key, r.value) for r in h.queue.records[:2]} == {
        (r.key, r.value) for r in expected.records
    }
    h.queue.records.clear()
    for pattern, said in (("(", "RE2"), (r"\Ax", "use ^"), ("[ab]{999}" * 2, "too large")):
        refused = await h.post_range(body, record_start=pattern)
        assert (refused.status_code, refused.json()["code"]) == (400, "range")
        assert said in refused.json()["detail"]
    unknown = await h.post_range(body, headers={"Hourmark-Part": "lines; needs=folding"})
    assert (unknown.status_code, unknown.json()["code"]) == (400, "headers")
    assert "upgrade" in unknown.json()["detail"]
    assert h.queue.records == []


@with_service()
async def test_a_record_may_be_longer_than_a_range(h: Harness) -> None:
    body = syslog("note", b"a\n" * (1 << 20))
    answer = await h.post_range(body, record_start=r"^<\d")
    assert (answer.status_code, answer.json()["events"]) == (200, 1)
