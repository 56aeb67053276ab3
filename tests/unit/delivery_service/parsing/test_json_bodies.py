"""Batches that are one JSON value: each element becomes what it would become as a line."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.revisions import encoded
from tests.support.service.examples import rules_of
from tests.support.service.harness import Harness, with_service
from tests.unit.delivery_service.edge.test_service_ranges import code

from hourmark.rules.revision import PARSER, ParserVersion
from hourmark_delivery_service.parsing.json_bodies import json_body_to_lines
from hourmark_delivery_service.parsing.json_payload import DEPTH_MAX

pytestmark = pytest.mark.slow

EVENTS = [
    {"user": "u", "ms": 1},
    {"user": "Zoë\n\u2028", "ms": 2},
    {"user": "u", "ms": "odd"},
    [],
    {"user": "u", "ms": 3},
]
KEY = {"Idempotency_Key": "01a1fbc3-5f52-7a60-9c1e-3b8f0d6e2a47"}
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    max_leaves=20,
)


def lines_of(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


@given(
    st.lists(_VALUES),
    st.sampled_from([None, 0, 1, "\t", " \r"]),
    st.booleans(),
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\r\n "]),
)
def test_an_array_is_its_elements_a_line_each(
    values: list[Any], indent: Any, ascii_only: bool, before: bytes
) -> None:
    body = before + json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode() + b"\n"
    assert [json.loads(line) for line in json_body_to_lines(body).split(b"\n")[:-1]] == values


@given(st.dictionaries(st.text(), _VALUES, min_size=1), st.sampled_from([None, 0, 1]))
def test_an_object_is_one_line(value: dict[str, Any], indent: int | None) -> None:
    (line,) = json_body_to_lines(json.dumps(value, indent=indent).encode()).splitlines()
    assert json.loads(line) == value


@given(st.lists(_VALUES, min_size=2))
def test_lines_stay_lines(values: list[Any]) -> None:
    body = lines_of(values)
    assert json_body_to_lines(body) == body


@given(st.binary() | st.text(alphabet='[]{}",:1 \n\\').map(str.encode))
def test_whatever_is_no_json_value_stays_as_it_came(body: bytes) -> None:
    made = json_body_to_lines(body)
    if made != body:
        value = json.loads(body.removeprefix(b"\xef\xbb\xbf").decode(errors="replace"))
        assert made.count(b"\n") == (len(value) if isinstance(value, list) else 1)


@pytest.mark.parametrize(
    ("depth", "is_array"), [(DEPTH_MAX, True), (DEPTH_MAX + 1, False), (200_000, False)]
)
def test_nesting_is_bounded_for_all_instances_alike(depth: int, is_array: bool) -> None:
    body = b"[" + b"[" * depth + b"]" * depth + b", 1]"
    assert (json_body_to_lines(body) != body) == is_array


@with_service()
async def test_an_array_makes_what_its_lines_make(h: Harness) -> None:
    pretty = await h.post_events(json.dumps(EVENTS, indent=2).encode(), **KEY)
    plain = await h.post_events(lines_of(EVENTS), **KEY)
    assert (pretty.status_code, pretty.json()["events"], pretty.json()["dead_letters"]) == (
        200,
        3,
        2,
    )
    assert (
        pretty.json()["dead_letter_reasons"]
        == plain.json()["dead_letter_reasons"]
        == {"wrong_field": 1, "bad_json": 1}
    )
    half = len(h.queue.records) // 2
    assert len(h.queue.records[:half]) == 6, "and the audit record"
    assert [r.topic for r in h.queue.records[:half]] == [r.topic for r in h.queue.records[half:]]


@with_service()
async def test_a_retry_of_an_array_is_the_same(h: Harness) -> None:
    for _ in range(2):
        answer = await h.post_events(json.dumps(EVENTS, indent=1).encode(), **KEY)
        assert answer.json()["delivery"] == "exactly once"
    half = len(h.queue.records) // 2
    assert h.queue.records[:half] == h.queue.records[half:]


@with_service()
async def test_one_object_over_several_lines_is_one_event(h: Harness) -> None:
    answer = await h.post_events(b'{\n  "user": "u",\n  "ms": 1\n}\n')
    assert (answer.json()["events"], answer.json()["dead_letters"]) == (1, 0)


@with_service()
async def test_an_array_without_events_and_one_over_the_limit_are_refused(h: Harness) -> None:
    assert code(await h.post_events(b"[]")) == (400, "batch")
    event = json.dumps({"user": "u" * 1000, "ms": 1})
    large = "[" + ",".join([event] * (h.config.service.range_bytes_max // len(event) + 1)) + "]"
    assert "\n" not in large
    assert code(await h.post_events(large.encode())) == (413, "too_large")
    assert not h.queue.records


@with_service()
async def test_an_earlier_revision_reads_lines_alone(h: Harness) -> None:
    before = dataclasses.replace(rules_of(5), parser=ParserVersion(1, PARSER.zones))
    h.rules.feed(encoded(before.records()), from_start=False)
    answer = await h.post_events(b'{\n  "user": "u",\n  "ms": 1\n}\n', Hourmark_Rules=before.id)
    assert (answer.json()["events"], answer.json()["dead_letters"]) == (0, 4)
