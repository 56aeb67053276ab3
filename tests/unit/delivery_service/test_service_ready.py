"""`/readyz` says what is the matter: a cluster without a leader is no lack of event types."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.service.harness import run, running
from tests.support.waiting import wait_for
from tests.unit.delivery_service.test_service_queue import FakeProducer, with_queue

from hourmark.config import Config
from hourmark.errors import Unavailable
from hourmark.topic_follower import KeyValue
from hourmark_delivery_service import rules_follower
from hourmark_delivery_service.kafka_queue import KafkaQueue
from hourmark_delivery_service.metrics import Metrics
from hourmark_delivery_service.rules_follower import RulesFollower
from hourmark_delivery_service.rules_store import RulesStore


def reason(rules: RulesStore) -> str:
    """Why it is not ready."""

    async def ask() -> str:
        async with running() as h:
            h.service.rules = rules
            answer = await h.client.get("/readyz")
            assert answer.status_code == 503
            (found,) = answer.json()["reasons"]
            return str(found)

    return run(ask)


def test_a_rules_topic_without_a_leader_is_named_and_no_types_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    back = threading.Event()

    def poll(_: object) -> tuple[bool, list[KeyValue]]:
        if not back.is_set():
            raise Unavailable("told no offset of hourmark.types-0: no leader answers")
        return True, []

    monkeypatch.setattr("hourmark.topic_follower.TopicFollower.poll", poll)
    monkeypatch.setattr(rules_follower, "POLL_S", 0.01)
    store = RulesStore(Metrics())
    follower = RulesFollower(Config(), store)
    follower.start()
    try:
        wait_for(lambda: store.trouble != "", "the follower met the trouble")
        assert (
            reason(store) == "the rules topic was not read to its end yet: told no offset of hourmark.types-0: no leader answers"
        )
        back.set()
        wait_for(lambda: store.caught_up and not store.trouble, "the follower reads again")
        assert "no event types are applied yet" in reason(store)
    finally:
        follower.stop()


@pytest.mark.parametrize(
    ("topics", "problem"),
    [
        ({}, "it does not exist"),
        ({"t": SimpleNamespace(error=None, partitions={})}, "nobody tells the partitions of the topic t"),
        ({"t": SimpleNamespace(error=None, partitions={0: SimpleNamespace(id=0, leader=-1, isrs=[])})}, "t-0 has no leader"),
    ],
)
@with_queue()
async def test_what_metadata_lacks_is_a_problem(
    queue: KafkaQueue, monkeypatch: pytest.MonkeyPatch, topics: dict[str, Any], problem: str
) -> None:
    told: Callable[..., Any] = lambda *_, **__: SimpleNamespace(topics=topics)  # noqa: E731
    monkeypatch.setattr(FakeProducer, "list_topics", told)
    (found,) = await queue.problems(["t"])
    assert problem in found
