"""`/readyz` says what is the matter: a cluster without a leader is no lack of event types."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import FakeClock
from tests.support.service.examples import NOW_MS, syslog
from tests.support.service.harness import Harness, run, running, with_service
from tests.support.waiting import wait_for
from tests.unit.delivery_service.queue.test_service_queue import FakeProducer, with_queue

from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.compacted_topic import KeyValue
from hourmark.kafka.topic_names import TYPES
from hourmark.records.wire import CLOCK_HEADER
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.parsing import TIME_MS_END
from hourmark_delivery_service.process import store_follower
from hourmark_delivery_service.process.store_follower import StoreFollower
from hourmark_delivery_service.queue.kafka_queue import KafkaQueue
from hourmark_delivery_service.work.rules_store import RulesStore
from hourmark_delivery_service.work.service import OBSERVED_AT_MS_MIN


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


def test_a_rules_topic_without_a_leader_is_named_and_no_types_are_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    back = threading.Event()

    def poll(_: object) -> tuple[bool, list[KeyValue]]:
        if not back.is_set():
            raise Unavailable("returned no offset for hourmark.types-0: no leader responds")
        return True, []

    monkeypatch.setattr("hourmark.kafka.compacted_topic.TopicFollower.poll", poll)
    monkeypatch.setattr(store_follower, "POLL_S", 0.01)
    store = RulesStore(ServiceMetrics())
    follower = StoreFollower(Config(), TYPES, store)
    follower.start()
    try:
        wait_for(lambda: store.read_error != "", "the follower met the trouble")
        assert reason(store) == (
            "the rules topic has not been read to its end yet: returned no offset for "
            "hourmark.types-0: no leader responds"
        )
        back.set()
        wait_for(lambda: store.caught_up and not store.read_error, "the follower reads again")
        assert "no event types have been applied yet" in reason(store)
    finally:
        follower.stop()


@pytest.mark.parametrize("now_ms", [0, OBSERVED_AT_MS_MIN - 1, TIME_MS_END])
@with_service()
async def test_a_clock_that_goes_wrong_is_told_to_nobody_and_nothing_is_taken_until_it_is_right(
    h: Harness, now_ms: int
) -> None:
    """Or tailers would write its time into ranges, and no service would take them ever."""
    h.service.clock = FakeClock(now_ms)
    report = h.client.post("/v1/reports", content=b"{}")
    for posted in (
        h.client.get("/v1/hello"),
        h.post_range(syslog()),
        h.post_events(b'{"user":"u","ms":1}\n'),
        report,
    ):
        answer = await posted
        assert answer.status_code == 503
        error = answer.json()
        assert error["code"] == "not_ready"
        assert (
            f"this machine's clock shows {now_ms} ms" in error["detail"]
            and "correct the clock" in error["detail"]
        )
    assert h.queue.records == []
    assert "clock" in (await h.client.get("/readyz")).json()["reasons"][0]
    for path in ("/v1/hello", "/healthz", "/nothing"):
        assert CLOCK_HEADER not in (await h.client.get(path)).headers
    h.service.clock = FakeClock(NOW_MS)
    assert (await h.client.get("/v1/hello")).headers[CLOCK_HEADER] == str(NOW_MS)
    assert (await h.post_range(syslog())).status_code == 200


@pytest.mark.parametrize(
    ("topics", "problem"),
    [
        ({}, "topic t does not exist"),
        (
            {"t": SimpleNamespace(error=None, partitions={})},
            "Kafka reports no partitions of the topic t",
        ),
        (
            {
                "t": SimpleNamespace(
                    error=None, partitions={0: SimpleNamespace(id=0, leader=-1, isrs=[])}
                )
            },
            "t-0 has no leader",
        ),
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
