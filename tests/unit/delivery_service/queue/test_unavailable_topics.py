"""A topic of one event type that is missing, or that cannot take records, affects that type alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import httpx
from confluent_kafka import KafkaError
from tests.support.service.harness import Harness, running, with_scene
from tests.unit.delivery_service.edge.test_service_ranges import code
from tests.unit.delivery_service.queue.test_service_queue import (
    FakeProducer,
    fake_queue,
    topic_with_replicas,
)

from hourmark.kafka.topic_names import AUDIT, HOSTS, events_topic

CLICK = b'{"user":"u","ms":1}\n'


def well(h: Harness) -> dict[str, SimpleNamespace]:
    assert h.rules.latest is not None
    names = [HOSTS, AUDIT, *map(events_topic, h.rules.latest.types)]
    return {name: topic_with_replicas(1, 2, 3) for name in names}


@contextlib.asynccontextmanager
async def on_fake_kafka() -> AsyncIterator[Harness]:
    async with running() as h, fake_queue(delivery_timeout_seconds=1.0) as queue:
        h.service.queue = queue
        FakeProducer.topics = well(h)
        yield h


with_fake_kafka = with_scene(on_fake_kafka)


async def ready(h: Harness) -> httpx.Response:
    h.clock.advance(2)
    return await h.client.get("/readyz")


@with_fake_kafka
async def test_a_missing_topic_of_one_type_leaves_the_service_ready(h: Harness) -> None:
    del FakeProducer.topics["events.click"]
    answer = await ready(h)
    assert answer.status_code == 200, answer.text
    (warning,) = answer.json()["warnings"]
    assert "events.click" in warning
    assert "does not exist" in warning
    assert "hourmark types apply" in warning


@with_fake_kafka
async def test_a_type_whose_topic_is_missing_is_refused_by_name_and_others_are_taken(
    h: Harness,
) -> None:
    del FakeProducer.topics["events.click"]
    FakeProducer.answers = {"events.click": KafkaError(KafkaError._UNKNOWN_TOPIC)}
    refused = await h.post_events(CLICK)
    assert code(refused) == (503, "topic_unavailable")
    assert "topic events.click does not exist" in refused.json()["detail"]
    assert (await h.post_events(b"no json\n")).status_code == 200, "a dead letter, of another topic"
    assert (await ready(h)).status_code == 200, "although a record was not delivered"


@with_fake_kafka
async def test_once_a_topic_is_known_to_be_missing_nothing_is_produced_for_it(h: Harness) -> None:
    del FakeProducer.topics["events.click"]
    FakeProducer.answers = {"events.click": KafkaError(KafkaError._UNKNOWN_TOPIC)}
    await h.post_events(CLICK)
    (producer,) = FakeProducer.made
    before, asked = len(producer.produced), FakeProducer.asked
    mixed = CLICK + b"no json\n"
    for _ in range(20):
        assert code(await h.post_events(mixed)) == (503, "topic_unavailable")
    assert len(producer.produced) == before, "of other types neither: a retry would double them"
    assert FakeProducer.asked - asked <= 2, "the cluster is asked at most once a second"


@with_fake_kafka
async def test_a_topic_that_is_there_again_is_used_within_a_second(h: Harness) -> None:
    there = FakeProducer.topics.pop("events.click")
    FakeProducer.answers = {"events.click": KafkaError(KafkaError._UNKNOWN_TOPIC)}
    assert code(await h.post_events(CLICK)) == (503, "topic_unavailable")
    FakeProducer.topics["events.click"], FakeProducer.answers = there, {}
    async with asyncio.timeout(5):
        while (await h.post_events(CLICK)).status_code != 200:
            await asyncio.sleep(0.05)
    assert (await ready(h)).json()["warnings"] == []


@with_fake_kafka
async def test_too_few_replicas_of_one_topic_are_its_own_trouble(h: Harness) -> None:
    FakeProducer.topics["events.click"] = topic_with_replicas(1)
    FakeProducer.answers = {"events.click": KafkaError(KafkaError._MSG_TIMED_OUT)}
    refused = await h.post_events(CLICK)
    assert code(refused) == (503, "topic_unavailable")
    assert "events.click-0 has 1 in-sync replicas of 2 needed" in refused.json()["detail"]
    answer = await ready(h)
    assert (answer.status_code, len(answer.json()["warnings"])) == (200, 1)


@with_fake_kafka
async def test_trouble_of_a_control_topic_is_the_services(h: Harness) -> None:
    FakeProducer.topics[AUDIT] = topic_with_replicas(1)
    FakeProducer.answer = KafkaError(KafkaError._MSG_TIMED_OUT)
    assert code(await h.post_events(CLICK)) == (503, "queue")
    answer = await ready(h)
    assert answer.status_code == 503
    assert any(AUDIT in reason for reason in answer.json()["reasons"])


@with_fake_kafka
async def test_a_service_that_can_store_no_type_is_not_ready(h: Harness) -> None:
    FakeProducer.topics = {name: FakeProducer.topics[name] for name in (HOSTS, AUDIT)}
    answer = await ready(h)
    assert answer.status_code == 503
    assert any("events.click" in reason for reason in answer.json()["reasons"])


@with_fake_kafka
async def test_a_metric_names_the_topics_that_cannot_take_records(h: Harness) -> None:
    def shown() -> float | None:
        return FakeProducer.metrics.registry.get_sample_value(
            "hourmark_service_topic_unavailable", {"topic": "events.click"}
        )

    await ready(h)
    assert shown() is None
    there = FakeProducer.topics.pop("events.click")
    await until(lambda: shown() == 1, h)
    FakeProducer.topics["events.click"] = there
    await until(lambda: shown() == 0, h)


async def until(is_so: Callable[[], bool], h: Harness) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await asyncio.sleep(0.05)
            await ready(h)
