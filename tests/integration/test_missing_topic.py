"""A type's topic that is deleted on a real cluster: other types continue, and the service creates
it again, or reports it until somebody else does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.service.live import CLICK, RAW, Serving, StockReader, lines, serving
from tests.support.waiting import wait_for

from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_names import events_topic
from hourmark.kafka.topic_setup import ensure_topics
from hourmark.rules.topics import event_topic_spec
from hourmark_infra.stack import LocalStack

pytestmark = pytest.mark.stack
TOPIC = events_topic(CLICK.name)
FORBIDDEN = {"HOURMARK_SERVICE__CREATE_MISSING_TOPICS": "false"}


@pytest.fixture
def edge(config: Config) -> Cluster:
    return Cluster(config.kafka.edge, "edge")


@pytest.fixture
def service(stack: LocalStack, config: Config, tmp_path: Path) -> Iterator[Serving]:
    with serving(stack, config, tmp_path) as started:
        yield started


@pytest.fixture
def forbidden(stack: LocalStack, config: Config, tmp_path: Path) -> Iterator[Serving]:
    """A service that must not create topics."""
    with serving(stack, config, tmp_path, settings=FORBIDDEN) as started:
        yield started


def delete_topic(edge: Cluster) -> None:
    edge.admin.delete_topics([TOPIC])[TOPIC].result(30)
    wait_for(lambda: not edge.topics([TOPIC]), f"{TOPIC} is gone", 30)


def raw_line(text: str) -> bytes:
    return f"<13>1 - - a p {RAW.name} - {text}\n".encode()


def post_raw(service: Serving, start: int) -> int:
    body = raw_line("of another type")
    byte_range = service.range_of(body, start=start, file="d" * 32)
    began_s = time.monotonic()
    status = service.post(byte_range, body).status_code
    assert time.monotonic() - began_s < 5
    return status


def test_the_service_creates_it_again_and_a_range_of_several_types_is_delivered(
    service: Serving, config: Config, edge: Cluster
) -> None:
    first = lines(range(3))
    assert service.post(service.range_of(first, file="c" * 32), first).status_code == 200
    before = edge.topics([TOPIC])[TOPIC]
    delete_topic(edge)
    mixed = lines(range(100, 120)) + raw_line("mixed")
    byte_range, began_s = service.range_of(mixed, start=5000, file="c" * 32), time.monotonic()
    answers: list[httpx.Response] = []
    while not answers or answers[-1].status_code != 200:
        assert time.monotonic() - began_s < 60, answers[-1].text
        answers.append(service.post(byte_range, mixed))
        assert service.get("/readyz").status_code == 200
        assert post_raw(service, 1000 * len(answers)) == 200
        time.sleep(0.5)
    print(f"delivered {time.monotonic() - began_s:.1f} s after the topic was gone")
    assert {a.json()["code"] for a in answers[:-1]} <= {"topic_unavailable"}
    after = edge.topics([TOPIC])[TOPIC]
    assert after.topic_id != before.topic_id, "the closer and the mirror see that it is another"
    assert ensure_topics(edge, [event_topic_spec(config.kafka, CLICK)]) == [], "as declared"
    reader, range_id = StockReader(config), byte_range.range_id(mixed)
    found = [row for row in reader.events(TOPIC) if row["key"][16:] == range_id]
    assert sorted({row["n"] for row in found}) == list(range(100, 120))
    audits = {a.value for a in reader.records("hourmark.audit") if a.key == range_id}
    assert len(audits) == 1, "one reading"


def test_where_it_must_not_it_names_the_topic_and_goes_on_with_others(
    forbidden: Serving, config: Config, edge: Cluster
) -> None:
    body = lines(range(200, 210))
    byte_range = forbidden.range_of(body, start=9000, file="c" * 32)
    delete_topic(edge)
    wait_for(lambda: forbidden.post(byte_range, body).status_code == 503, "it is refused", 60)
    for number in range(5):
        began_s = time.monotonic()
        answer = forbidden.post(byte_range, body)
        assert (answer.status_code, answer.json()["code"]) == (503, "topic_unavailable")
        assert time.monotonic() - began_s < 4, "nobody waits for a topic that is known to be gone"
        assert post_raw(forbidden, 100_000 + 1000 * number) == 200
    ready = forbidden.get("/readyz")
    assert ready.status_code == 200
    assert any(TOPIC in warning for warning in ready.json()["warnings"])
    assert (
        f'hourmark_service_topic_unavailable{{topic="{TOPIC}"}} 1.0'
        in forbidden.get("/metrics").text
    )
    ensure_topics(edge, [event_topic_spec(config.kafka, CLICK)])
    began_s = time.monotonic()
    wait_for(lambda: forbidden.post(byte_range, body).status_code == 200, "it is healed", 30)
    print(f"healed {time.monotonic() - began_s:.1f} s after the topic was there")
