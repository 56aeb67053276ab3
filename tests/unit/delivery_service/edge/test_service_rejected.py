"""Events of a batch that cannot be taken: named in the answer, and where the client asks for it, a
reason to take none.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.revisions import encoded
from tests.support.service.examples import NOW_MS
from tests.support.service.harness import Harness, with_service

from hourmark.config.groups import ParsingSettings
from hourmark.rules.event_types import DEAD_LETTERS, EventType, LineRule
from hourmark.rules.revision import Rules, TypeVersion

GOOD = b'{"user": "u", "ms": 1}'
ATOMIC = {"Hourmark_Atomic": "true"}
BAD: list[tuple[bytes, str, str | None]] = [
    (b'{"user": "u", "ms": "x"}', "wrong_field", "ms"),
    (b'{"user": "u"}', "missing_field", "ms"),
    (b'{"user": "u", "ms": 1, "more": 2}', "unknown_field", "more"),
    (b'{"user": "u", "ms": 1, "event_id": 7}', "wrong_field", "event_id"),
    (b'{"user": "u", "ms": 1, "event_time": "x"}', "bad_timestamp", "event_time"),
    (b'{"user": "u", "ms": 1, "event_time": 7}', "too_late", None),
    (b"{", "bad_json", None),
    (b"  ", "empty_line", None),
]


@pytest.mark.parametrize(("line", "reason", "field"), BAD)
@with_service()
async def test_the_answer_names_field_reason_and_line(
    h: Harness, line: bytes, reason: str, field: str | None
) -> None:
    answer = await h.post_events(b"\n".join([GOOD, line, b"", GOOD, line]))
    assert answer.status_code == 200
    said: dict[str, Any] = answer.json()
    assert (said["events"], said["dead_letters"]) == (2, 2)
    assert [(row["index"], row["reason"], row["field"]) for row in said["rejected"]] == [
        (1, reason, field),
        (4, reason, field),
    ]
    assert all(row["detail"] for row in said["rejected"])


@with_service()
async def test_an_element_of_an_array_has_its_index(h: Harness) -> None:
    answer = await h.post_events(b"[" + b",\n".join([GOOD, b"{}", GOOD]) + b"]")
    assert [row["index"] for row in answer.json()["rejected"]] == [1]


@with_service()
async def test_an_answer_names_a_thousand_at_most_and_nothing_where_all_are_taken(
    h: Harness,
) -> None:
    answer = (await h.post_events(b"{}\n" * 3000)).json()
    assert (answer["dead_letters"], len(answer["rejected"])) == (3000, 1000)
    assert "rejected" not in (await h.post_events(GOOD)).json()


@pytest.mark.parametrize("line", [line for line, _, _ in BAD])
@with_service()
async def test_of_an_atomic_batch_with_a_bad_event_nothing_is_written(
    h: Harness, line: bytes
) -> None:
    answer = await h.post_events(b"\n".join([*[GOOD] * 5000, line]), **ATOMIC)
    said = answer.json()
    assert (answer.status_code, said["code"]) == (422, "rejected")
    assert [row["index"] for row in said["rejected"]] == [5000]
    assert set(said["repeat"]) == {"Hourmark-Observed-At", "Hourmark-Rules"}
    assert not h.queue.records


@with_service()
async def test_an_atomic_batch_without_a_bad_event_is_the_same_as_any(h: Harness) -> None:
    headers = {"Idempotency_Key": "k", "Hourmark_Observed_At": str(NOW_MS)}
    assert (await h.post_events(GOOD + b"\n\n" + GOOD, **headers, **ATOMIC)).status_code == 200
    first = list(h.queue.records)
    assert (await h.post_events(GOOD + b"\n\n" + GOOD, **headers)).status_code == 200
    assert h.queue.records == first * 2


@with_service()
async def test_atomic_is_true_or_false(h: Harness) -> None:
    answer = await h.post_events(GOOD, Hourmark_Atomic="yes")
    assert (answer.status_code, answer.json()["code"]) == (400, "headers")
    assert (await h.post_events(GOOD, Hourmark_Atomic="false")).status_code == 200


@with_service()
async def test_of_a_type_that_redacts_the_answer_quotes_nothing(h: Harness) -> None:
    kind = EventType(
        name="secret",
        fields=[
            {"name": "user", "type": "string"},
            {"name": "ms", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
        ],
        line=LineRule(redact=[{"field": "user", "pattern": "u"}]),
    )
    types = {t.name: TypeVersion(t, number) for number, t in enumerate((kind, DEAD_LETTERS), 1)}
    h.rules.feed(
        encoded(Rules(sequence=2, types=types, sources={}, parsing=ParsingSettings()).records()),
        from_start=True,
    )
    answer = await h.post_events(b'{"user": "u", "ms": "hunter2"}', "secret")
    assert answer.json()["rejected"] == [{"index": 0, "reason": "wrong_field", "field": "ms"}]
    assert "hunter2" not in json.dumps(answer.json())
