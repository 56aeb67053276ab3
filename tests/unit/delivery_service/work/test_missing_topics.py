"""The service creates the topic of a declared type that does not exist, once this is confirmed."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.service.harness import Harness, with_service

from hourmark.config.groups import KafkaSettings
from hourmark.errors import Unavailable
from hourmark.rules.event_types import EventType
from hourmark.rules.topics import event_topic_spec
from hourmark_delivery_service.errors import TopicUnavailable
from hourmark_delivery_service.work.missing_topics import CONFIRM_S, RETRY_S, MissingTopics

CLICK = b'{"user":"u","ms":1}\n'


class Cluster:
    """Where topics are created, unless that is forbidden."""

    def __init__(self, h: Harness) -> None:
        self.created: list[EventType] = []
        self.forbidden = False
        self._h = h
        h.queue.fail_with = TopicUnavailable(
            "events.click", "topic events.click does not exist", is_missing=True
        )
        h.service.missing_topics = MissingTopics(self.create, h.rules, h.clock)

    def create(self, event_type: EventType) -> None:
        if self.forbidden:
            raise Unavailable("the edge cluster did not create it: not authorized")
        self.created.append(event_type)
        self._h.queue.fail_with = None


async def settle() -> None:
    await asyncio.sleep(0.05)


@with_service()
async def test_a_missing_topic_is_created_after_it_was_missing_for_several_seconds(
    h: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(h)
    for _ in range(3):
        assert (await h.post_events(CLICK)).status_code == 503
        h.clock.advance(CONFIRM_S / 4)
        await settle()
    assert cluster.created == []
    h.clock.advance(CONFIRM_S / 4)
    await h.post_events(CLICK)
    await settle()
    (created,) = cluster.created
    assert event_topic_spec(KafkaSettings(), created).name == "events.click"
    assert "events.click did not exist at the edge and was created again" in caplog.text
    assert (await h.post_events(CLICK)).status_code == 200


@with_service()
async def test_a_single_report_creates_nothing_and_is_forgotten(h: Harness) -> None:
    cluster = Cluster(h)
    await h.post_events(CLICK)
    h.clock.advance(3600)
    await h.post_events(CLICK)
    await settle()
    assert cluster.created == []


@with_service()
async def test_what_is_forbidden_is_named_and_tried_again(h: Harness) -> None:
    cluster = Cluster(h)
    cluster.forbidden = True
    await h.post_events(CLICK)
    h.clock.advance(CONFIRM_S)
    await h.post_events(CLICK)
    await settle()
    detail = (await h.post_events(CLICK)).json()["detail"]
    assert "topic events.click does not exist" in detail
    assert "not authorized" in detail
    cluster.forbidden = False
    h.clock.advance(RETRY_S)
    await h.post_events(CLICK)
    await settle()
    assert len(cluster.created) == 1


@with_service()
async def test_a_topic_that_exists_and_cannot_be_written_is_left_alone(h: Harness) -> None:
    cluster = Cluster(h)
    h.queue.fail_with = TopicUnavailable("events.click", "no leader", is_missing=False)
    for _ in range(3):
        assert (await h.post_events(CLICK)).status_code == 503
        h.clock.advance(CONFIRM_S)
        await settle()
    assert cluster.created == []
