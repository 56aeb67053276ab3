"""What a request may say twice, leave empty, or send in another form than events: refused, with
what to send instead.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
from tests.support.service.examples import syslog
from tests.support.service.harness import Harness, with_service

from hourmark.errors import ConfigError, Finding
from hourmark_delivery_service.limits.http_protocol import check_uvicorn
from hourmark_delivery_service.queue.running_producer import make_producer

LINE = b'{"user": "u", "ms": 1}\n'
EVENTS = "/v1/events/click"
FORM = "application/x-www-form-urlencoded"


def bare_deflate(body: bytes) -> bytes:
    made = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return made.compress(body) + made.flush()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("x-gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", bare_deflate)],
)
@with_service()
async def test_encodings_of_http_are_taken_whole_or_refused(
    h: Harness, encoding: str, compress: Any
) -> None:
    sent = compress(LINE * 100)
    headers = {"Content-Encoding": encoding}
    answer = await h.client.post(EVENTS, content=sent, headers=headers)
    assert (answer.status_code, answer.json()["events"]) == (200, 100)
    for broken in (sent[:-1], sent[: len(sent) // 2], sent + b"x", b""):
        answer = await h.client.post(EVENTS, content=broken, headers=headers)
        assert answer.status_code == 400, broken
    bomb = compress(b"\0" * (64 << 20))
    assert (await h.client.post(EVENTS, content=bomb, headers=headers)).status_code == 413
    assert len(h.queue.of("events.click")) == 100


@pytest.mark.parametrize(
    "name", ["Hourmark-Observed-At", "Hourmark-Rules", "Hourmark-Client", "Idempotency-Key"]
)
@with_service()
async def test_a_header_that_comes_twice_with_different_values_is_refused(
    h: Harness, name: str
) -> None:
    rules = h.service.rules.latest
    assert rules is not None
    value = {"Hourmark-Observed-At": str(h.clock.now_ms()), "Hourmark-Rules": rules.id}.get(
        name, "a"
    )
    other = [(name, value), (name.lower(), value + "0")]
    answer = await h.client.post(EVENTS, content=LINE, headers=other)
    assert (answer.status_code, answer.json()["code"]) == (400, "headers")
    assert name in answer.json()["detail"]
    assert not h.queue.records
    same = await h.client.post(EVENTS, content=LINE, headers=[(name, value), (name, value)])
    assert same.status_code == 200


@with_service()
async def test_no_revision_is_no_name_of_one(h: Harness) -> None:
    for answer in (
        await h.client.post(EVENTS, content=LINE, headers={"Hourmark-Rules": ""}),
        await h.post_range(syslog(), headers={"Hourmark-Rules": ""}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (400, "headers")


@with_service()
async def test_forms_are_refused_with_the_command_that_sends_events(h: Harness) -> None:
    for media_type, body in (
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="f"\r\n\r\n' + LINE + b"\r\n--x--\r\n",
        ),
        (FORM, b"user=u&ms=1"),
        (f"{FORM}; charset=utf-8", b"%7B%22user%22%3A1%7D"),
    ):
        answer = await h.client.post(EVENTS, content=body, headers={"Content-Type": media_type})
        assert (answer.status_code, answer.json()["code"]) == (415, "media_type")
        assert f"--data-binary @events.ndjson http://service{EVENTS}" in answer.json()["next_step"]
    assert not h.queue.records


@with_service()
async def test_json_that_curl_calls_a_form_is_taken(h: Harness) -> None:
    for body in (LINE, b"[" + LINE + b"]", b" \n" + LINE):
        assert (
            await h.client.post(EVENTS, content=body, headers={"Content-Type": FORM})
        ).status_code == 200


@pytest.mark.parametrize(
    ("settings", "named", "why"),
    [
        ({"bogus.prop": "hunter2"}, "bogus.prop", "unknown property"),
        ({"security.protocol": "hunter2"}, "security.protocol", "its value is invalid"),
        ({"acks": "hunter2"}, "request.required.acks", "its value is invalid"),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "/hunter2"},
            "ssl.ca.location",
            "its value is invalid",
        ),
    ],
)
def test_a_kafka_property_that_is_not_accepted_is_named_without_its_value(
    settings: dict[str, str], named: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=rf'kafka\.edge\.properties "{named}".*{why}') as found:
        make_producer({"bootstrap.servers": "127.0.0.1:1", **settings})
    assert "hunter2" not in str(found.value)
    assert found.value.__suppress_context__


def test_the_installed_uvicorn_is_the_tested_one() -> None:
    check_uvicorn()


class Lacking:
    """A protocol, or a cycle, of a version to come."""

    def __init__(self) -> None:
        self.transport = None


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"version": "0.55.1"}, "uvicorn 0.55.1"),
        ({"version": "1.0.0"}, "requires uvicorn 0.54"),
        ({"protocol": Lacking}, "pipeline"),
        ({"cycle": Lacking}, r"cycle\.more_body"),
    ],
)
def test_another_uvicorn_is_found_before_the_service_starts(
    changed: dict[str, Any], named: str
) -> None:
    with pytest.raises(Finding, match=named):
        check_uvicorn(**changed)
