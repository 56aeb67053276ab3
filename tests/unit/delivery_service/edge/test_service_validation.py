"""POST /v1/events/{type}:validate answers what POST /v1/events/{type} would, and stores nothing."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.service.examples import NOW_MS
from tests.support.service.harness import Harness, run, running, with_service
from tests.support.service.network import networked
from tests.support.service.tokens import bearer, known
from tests.unit.delivery_service.edge.test_service_rejected import BAD
from tests.unit.delivery_service.edge.test_service_retries import uuid7

from hourmark.records.wire import EVENTS_PATH, VALIDATE_PATH
from hourmark_delivery_service.errors import QueueUnavailable

GOOD = b'{"user": "u", "ms": 1}'
ALL_LINES = b"\n".join([GOOD, *(line for line, _, _ in BAD), b"", GOOD])


@dataclasses.dataclass(frozen=True)
class Post:
    """A request that is sent to both paths, and the status that both must answer."""

    status: int
    code: str = ""
    body: bytes = GOOD
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    event_type: str = "click"
    prepare: Callable[[Harness], None] = lambda _: None


def unready(h: Harness) -> None:
    h.service.first_report_sent = False


def without_framing(h: Harness) -> None:
    h.service.framing = None


def full(h: Harness) -> None:
    h.service.inflight.bytes = h.config.service.inflight_bytes_max


def nearly_full(h: Harness) -> None:
    h.service.inflight.bytes = h.config.service.inflight_bytes_max - (1 << 20)


POSTS = {
    "one event": Post(200),
    "every kind of line": Post(200, body=ALL_LINES),
    "an array": Post(200, body=b"[" + GOOD + b", {}, " + GOOD + b"]"),
    "more rejected events than an answer names": Post(200, body=b"{}\n" * 1500),
    "a retry that would double nothing": Post(200, headers={"Idempotency-Key": uuid7(NOW_MS - 5)}),
    "its own ids and times": Post(
        200, body=b'{"user": "u", "ms": 1, "event_id": "e", "event_time": %d}' % NOW_MS
    ),
    "an atomic batch": Post(200, headers={"Hourmark-Atomic": "true"}),
    "a rejected atomic batch": Post(
        422, "rejected", body=ALL_LINES, headers={"Hourmark-Atomic": "true"}
    ),
    "an empty body": Post(400, "batch", body=b""),
    "a mistyped header": Post(400, "headers", headers={"Hourmark-Atomic": "yes"}),
    "a time in seconds": Post(400, "headers", headers={"Hourmark-Observed-At": "1795225200"}),
    "a damaged encoding": Post(400, "broken_encoding", headers={"Content-Encoding": "gzip"}),
    "an unknown encoding": Post(415, "encoding", headers={"Content-Encoding": "br"}),
    "a form": Post(415, "media_type", headers={"Content-Type": "multipart/form-data"}),
    "an unknown type": Post(404, "unknown_type", event_type="clack"),
    "dead letters": Post(404, "unknown_type", event_type="dead-letters"),
    "too many bytes": Post(413, "too_large", body=(GOOD + b"\n") * 60_000),
    "a service that has just started": Post(503, "not_ready", prepare=unready),
    "schema ids that are not known yet": Post(503, "not_ready", prepare=without_framing),
    "an unknown revision": Post(503, "rules_unknown", headers={"Hourmark-Rules": "9-x"}),
    "a clock that is behind": Post(
        503, "clock_behind", headers={"Idempotency-Key": uuid7(NOW_MS + 3_600_000)}
    ),
    "no memory for a body": Post(503, "overloaded", prepare=full),
    "no memory for what parsing keeps of short lines": Post(
        503, "overloaded", body=b"{}\n" * 20_000, prepare=nearly_full
    ),
}


async def answered(post: Post, path: str) -> tuple[httpx.Response, Harness]:
    """The answer of a service of its own to this request."""
    async with running() as h:
        post.prepare(h)
        url = path.format(type=post.event_type)
        return await h.client.post(url, content=post.body, headers=dict(post.headers)), h


def without_mark(answer: httpx.Response) -> Any:
    """The body without the member that marks a validation, and without names of paths."""
    content = answer.json()
    if answer.status_code == 200:
        assert content.pop("validate_only", False) is (":validate" in str(answer.request.url))
    if "next_step" in content:
        content["next_step"] = content["next_step"].replace(":validate", "")
    return content


@pytest.mark.parametrize("name", POSTS)
def test_a_validation_is_answered_as_a_real_request_and_stores_nothing(name: str) -> None:
    post = POSTS[name]

    async def both() -> None:
        real, _ = await answered(post, EVENTS_PATH)
        validated, h = await answered(post, VALIDATE_PATH)
        assert (validated.status_code, validated.json().get("code", "")) == (post.status, post.code)
        assert without_mark(validated) == without_mark(real)
        for answer in (validated, real):
            del answer.headers["content-length"]
        assert validated.headers == real.headers
        assert h.queue.records == []

    run(both)


LINES = st.one_of(
    st.sampled_from([GOOD, *(line for line, _, _ in BAD), b""]),
    st.fixed_dictionaries(
        {},
        optional={
            "user": st.text(max_size=3) | st.integers(),
            "ms": st.integers(-(2**64), 2**64) | st.floats(allow_nan=False),
            "ref": st.none() | st.text(max_size=3) | st.booleans(),
            "event_id": st.text(max_size=2) | st.integers(0, 1),
            "event_time": st.integers(NOW_MS - 10**13, NOW_MS + 10**9) | st.text(max_size=3),
        },
    ).map(lambda fields: json.dumps(fields).encode()),
)


@pytest.mark.slow
@given(lines=st.lists(LINES, min_size=1, max_size=8), atomic=st.booleans())
def test_a_validation_predicts_the_answer_to_any_batch(lines: list[bytes], atomic: bool) -> None:
    headers = {"Hourmark-Atomic": str(atomic).lower(), "Idempotency-Key": "k"}
    body = b"\n".join(lines)

    async def both() -> None:
        async with running() as h:
            validated = await h.client.post(
                "/v1/events/click:validate", content=body, headers=headers
            )
            assert h.queue.records == []
            real = await h.client.post("/v1/events/click", content=body, headers=headers)
        assert validated.status_code == real.status_code
        assert without_mark(validated) == without_mark(real)

    run(both)


@with_service()
async def test_metrics_tell_validated_events_from_acknowledged_ones(h: Harness) -> None:
    body = b"\n".join([GOOD, GOOD, b"{}", b"", GOOD])
    await h.client.post("/v1/events/click:validate", content=body)
    before = metrics(h)
    assert before["hourmark_service_validated_events_total"] == {
        'result="valid",type="click"': 3.0,
        'result="rejected",type="click"': 1.0,
    }
    for name in ("events", "dead_letters"):
        assert f"hourmark_service_{name}_total" not in before
    for name in ("blank_lines", "received_bytes"):
        assert before[f"hourmark_service_{name}_total"] == {"": 0.0}
    assert before["hourmark_service_requests_total"] == {
        f'path="{VALIDATE_PATH}",status="200"': 1.0
    }
    await h.client.post("/v1/events/click", content=body)
    after = metrics(h)
    assert (
        after["hourmark_service_validated_events_total"]
        == before["hourmark_service_validated_events_total"]
    )
    assert after["hourmark_service_events_total"] == {'type="click"': 3.0}


@pytest.mark.parametrize("atomic", ["true", "false"])
@with_service()
async def test_rejected_events_of_an_atomic_validation_are_counted(h: Harness, atomic: str) -> None:
    await h.client.post(
        "/v1/events/click:validate", content=GOOD + b"\n{}", headers={"Hourmark-Atomic": atomic}
    )
    assert metrics(h)["hourmark_service_validated_events_total"] == {
        'result="valid",type="click"': 1.0,
        'result="rejected",type="click"': 1.0,
    }


def metrics(h: Harness) -> dict[str, dict[str, float]]:
    """Values by labels, by the name of the metric."""
    found: dict[str, dict[str, float]] = {}
    for name, labels, value in re.findall(
        r"^(\w+)(?:\{(.*)\})? (\S+)$", h.metrics.exposition().decode(), re.MULTILINE
    ):
        found.setdefault(name, {})[",".join(sorted(labels.split(",")))] = float(value)
    return found


@pytest.mark.parametrize("path", [EVENTS_PATH, VALIDATE_PATH])
@with_service(tokens_required=True)
async def test_tokens_and_rates_apply_to_a_validation(h: Harness, path: str) -> None:
    async def post(event_type: str, **headers: str) -> tuple[int, str]:
        answer = await h.client.post(
            path.format(type=event_type), content=GOOD + b"\n" + GOOD, headers=headers
        )
        return answer.status_code, answer.json().get("code", "")

    token = known(h, types=("click",), events_per_second=1)
    assert await post("click") == (401, "no_token")
    assert await post("note", **bearer(token)) == (403, "not_covered")
    assert await post("click", **bearer(token)) == (200, "")
    assert await post("click", **bearer(token)) == (429, "rate")
    h.clock.advance(2)
    assert await post("click", **bearer(token)) == (200, "")


def test_a_body_that_does_not_arrive_is_answered_with_408() -> None:
    async def stalled() -> None:
        async with networked(body_seconds=0.2) as network:
            answer = await network.exchange(
                b"POST /v1/events/click:validate HTTP/1.1\r\nHost: s\r\nContent-Length: 9\r\n\r\n{"
            )
            assert answer.code() == (408, "slow_body")
            assert network.harness.queue.records == []

    run(stalled)


@with_service()
async def test_validation_does_not_ask_kafka(h: Harness) -> None:
    h.queue.fail_with = QueueUnavailable("too few in-sync replicas")
    assert (await h.client.post("/v1/events/click", content=GOOD)).status_code == 503
    assert (await h.client.post("/v1/events/click:validate", content=GOOD)).status_code == 200


@pytest.mark.parametrize("path", ["/v1/events/:validate", "/v1/events/click:validated"])
@with_service()
async def test_a_mistyped_path_stores_nothing(h: Harness, path: str) -> None:
    answer = await h.client.post(path, content=GOOD)
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_type")
    assert h.queue.records == []


@with_service()
async def test_other_methods_are_refused(h: Harness) -> None:
    assert (await h.client.get("/v1/events/click:validate")).status_code == 405
