"""The queue port in memory, and Kafka's side of it with a producer that misbehaves on command."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.memory_queue import MemoryQueue
from tests.support.service.harness import Test, with_scene
from tests.support.service.queue_contract import CHECKS, Check, messages

from hourmark.config.loading import Config
from hourmark.kafka.clients import remember_brokers
from hourmark_delivery_service.errors import NotDelivered, QueueUnavailable
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.queue.kafka_queue import KafkaQueue, producer_settings

RECORDS = {"t": messages([(b"k%d" % n, b"v") for n in range(3)])}


class ReadableMemory:
    topics: Sequence[str] = ("a", "b")

    def __init__(self) -> None:
        self.queue = MemoryQueue()

    def read(self, topic: str) -> list[tuple[bytes, bytes]]:
        return [(r.key, r.value) for r in self.queue.of(topic)]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check: Check) -> None:
    asyncio.run(check(ReadableMemory()))


class FakeProducer:
    """librdkafka's interface. `answer` is what each delivery report says; "never": none comes."""

    made: list[FakeProducer]
    metrics: ServiceMetrics  # of the queue that makes them
    answer: KafkaError | str | None = None
    full: bool | int = False  # or how many records it takes at a time
    raises: KafkaException | None = None  # by the next poll, once
    raises_at_end: KafkaException | None = None  # by flush
    topics: Any = None  # what the cluster says of them; None: it does not answer
    answers: dict[str, KafkaError | str] = {}  # noqa: RUF012  # by topic, instead of `answer`
    asked = 0  # how often for the topics

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._pending: list[Any] = []
        self.produced: list[tuple[Any, ...]] = []
        self.purged = False
        FakeProducer.made.append(self)

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *, on_delivery: Any) -> int:
        if self.full is True:
            raise BufferError
        room = len(messages) if self.full is False else self.full
        for message in messages[room:]:
            message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
        taken = messages[:room]
        self.produced += [(topic, message["value"], message["key"]) for message in taken]
        with self._lock:
            self._pending += [(topic, on_delivery) for _ in taken]
        return len(taken)

    def poll(self, timeout: float) -> None:
        threading.Event().wait(0.002)
        raised, self.raises = self.raises, None
        if raised is not None:
            raise raised
        with self._lock:
            told = [(self.answers.get(topic, self.answer), done) for topic, done in self._pending]
            self._pending = [
                pending
                for pending, (answer, _) in zip(self._pending, told, strict=True)
                if isinstance(answer, str)
            ]
        for answer, on_delivery in told:
            if not isinstance(answer, str):
                on_delivery(answer, None)

    def purge(self) -> None:
        self.purged = True
        with self._lock:
            taken, self._pending = self._pending, []
        for _, on_delivery in taken:
            on_delivery(KafkaError(KafkaError._PURGE_QUEUE), None)

    def __len__(self) -> int:
        return len(self._pending)

    def flush(self, timeout: float) -> int:
        if self.raises_at_end is not None:
            raise self.raises_at_end
        return len(self._pending)

    def list_topics(self, timeout: float) -> Any:
        FakeProducer.asked += 1
        if self.topics is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics=self.topics)


def topic_with_replicas(*in_sync: int) -> SimpleNamespace:
    """Metadata of a topic with one partition, whose leader is broker 1."""
    partition = SimpleNamespace(id=0, leader=1, isrs=list(in_sync))
    return SimpleNamespace(error=None, partitions={0: partition})


@contextlib.asynccontextmanager
async def fake_queue(**service: Any) -> AsyncIterator[KafkaQueue]:
    """A queue whose producers are fake."""
    FakeProducer.made, FakeProducer.answer, FakeProducer.full = [], None, False
    FakeProducer.topics, FakeProducer.metrics = None, ServiceMetrics()
    FakeProducer.answers, FakeProducer.asked = {}, 0
    queue = KafkaQueue(Config(service=service), FakeProducer.metrics, FakeProducer)
    yield queue
    await queue.close(1)


def with_queue(**service: Any) -> Callable[[Callable[..., Awaitable[None]]], Test]:
    """The test gets such a queue."""
    return with_scene(lambda: fake_queue(**service))


@with_queue()
async def test_one_producer_takes_all_connections(queue: KafkaQueue) -> None:
    await asyncio.gather(*(queue.append(RECORDS) for _ in range(50)))
    assert len(FakeProducer.made) == 1
    assert len(FakeProducer.made[0].produced) == 150
    assert FakeProducer.made[0].produced[0] == ("t", b"v", b"k0")


@with_queue()
async def test_memory_is_not_enough_for_an_ack(queue: KafkaQueue) -> None:
    FakeProducer.answer = "never"
    append = asyncio.create_task(queue.append(RECORDS))
    await asyncio.sleep(0.1)
    assert not append.done()
    FakeProducer.answer = None
    await append


@with_queue()
async def test_a_record_that_was_not_delivered_fails_its_append(queue: KafkaQueue) -> None:
    FakeProducer.answer = KafkaError(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(NotDelivered):
        await queue.append(RECORDS)
    FakeProducer.answer = None
    await queue.append(RECORDS)
    assert (
        FakeProducer.metrics.registry.get_sample_value(
            "hourmark_service_produce_errors_total", {"error": "_MSG_TIMED_OUT"}
        )
        == 3
    )
    assert len(FakeProducer.made) == 1, "one failure is no reason to suspect the producer"


@with_queue(delivery_timeout_seconds=0.3)
async def test_a_full_producer_means_waiting_and_then_503_never_a_drop(queue: KafkaQueue) -> None:
    FakeProducer.full = True
    waiting = asyncio.create_task(queue.append(RECORDS))
    await asyncio.sleep(0.1)
    FakeProducer.full = False
    await waiting
    FakeProducer.full = True
    with pytest.raises(QueueUnavailable):
        await queue.append(RECORDS)


@with_queue()
async def test_a_producer_with_a_fatal_error_is_recreated_without_a_restart(
    queue: KafkaQueue,
) -> None:
    FakeProducer.answer = "never"
    under_way = asyncio.create_task(queue.append(RECORDS))
    await asyncio.sleep(0.05)
    FakeProducer.made[0].settings["error_cb"](KafkaError(KafkaError._FATAL))
    FakeProducer.made[0].answer = KafkaError(KafkaError._FATAL)
    with pytest.raises(NotDelivered):
        await under_way
    FakeProducer.answer = None
    await queue.append(RECORDS)
    assert len(FakeProducer.made) == 2
    assert (
        FakeProducer.metrics.registry.get_sample_value("hourmark_service_producer_renewals_total")
        == 1
    )
    while not FakeProducer.made[0].purged:
        await asyncio.sleep(0.01)


FATAL = KafkaException(
    KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "of librdkafka", fatal=True)
)


@with_queue()
async def test_a_fatal_error_that_is_raised_costs_requests_under_way_alone(
    queue: KafkaQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """confluent_kafka calls no `error_cb` of it: whoever polls gets the exception."""
    FakeProducer.answer = "never"
    under_way = asyncio.create_task(queue.append(RECORDS))
    await asyncio.sleep(0.05)
    FakeProducer.answer, FakeProducer.made[0].answer, FakeProducer.made[0].raises = (
        None,
        "never",
        FATAL,
    )
    with pytest.raises(NotDelivered):
        await under_way
    await queue.append(RECORDS)
    assert len(FakeProducer.made) == 2
    FakeProducer.made[1].raises = FATAL  # while nothing is under way
    while len(FakeProducer.made) == 2:
        await asyncio.sleep(0.01)
    await queue.append(RECORDS)
    assert "handling a delivery report failed" not in caplog.text


@with_queue()
async def test_a_fatal_error_at_the_end_is_no_failure_to_end(queue: KafkaQueue) -> None:
    FakeProducer.made[0].raises_at_end = FATAL
    await queue.close(1)


@with_queue(delivery_timeout_seconds=0.1)
async def test_a_producer_that_delivers_nothing_although_the_cluster_is_well_is_recreated(
    queue: KafkaQueue,
) -> None:
    """The classic: "producers fell into a state that only a restart cured"."""
    FakeProducer.topics = {"t": topic_with_replicas(1)}
    FakeProducer.answer = KafkaError(KafkaError._MSG_TIMED_OUT)
    deadline = asyncio.get_running_loop().time() + 0.5
    while asyncio.get_running_loop().time() < deadline:
        with pytest.raises(NotDelivered):
            await queue.append(RECORDS)
    assert len(FakeProducer.made) == 1, (
        "with the cluster in trouble a new producer would help nobody"
    )
    FakeProducer.topics = {"t": topic_with_replicas(1, 2, 3)}
    while len(FakeProducer.made) == 1:
        with pytest.raises(NotDelivered):
            await queue.append(RECORDS)
    FakeProducer.answer = None
    await queue.append(RECORDS)


@with_queue(delivery_timeout_seconds=0.05)
async def test_a_producer_that_finds_no_broker_is_made_anew_once_with_those_named_since(
    queue: KafkaQueue,
) -> None:
    """librdkafka, once it reaches none of the brokers it knew, goes back to those it was told of
    when it was made.
    """

    async def fails_for(seconds: float) -> int:
        FakeProducer.answer = KafkaError(KafkaError._MSG_TIMED_OUT)
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            with pytest.raises(NotDelivered):
                await queue.append(RECORDS)
        return len(FakeProducer.made)

    assert await fails_for(0.5) == 1, "there is nothing that another producer would know"
    replacement = f"{uuid.uuid4().hex}:9092"
    remember_brokers(Config().kafka.edge, [replacement])
    assert await fails_for(0.5) == 2
    assert replacement in FakeProducer.made[1].settings["bootstrap.servers"]


@with_queue()
async def test_a_queue_that_does_not_answer_has_a_problem_and_raises_nothing(
    queue: KafkaQueue,
) -> None:
    (problem,) = await queue.problems(["t"])
    assert "Kafka does not respond" in problem and "(kafka.edge.bootstrap)" in problem
    FakeProducer.answer = KafkaError(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(NotDelivered):
        await queue.append(RECORDS)
    assert "nothing has been delivered for 0 s" in await queue.problems(["t"]), (
        "whatever the brokers say"
    )
    FakeProducer.answer = None
    await queue.append(RECORDS)
    assert len(await queue.problems(["t"])) == 1


def test_an_ack_means_all_in_sync_replicas_and_no_reordering() -> None:
    settings = producer_settings(Config())
    assert (settings["acks"], settings["enable.idempotence"]) == ("all", True)
    assert settings["message.max.bytes"] == 8 << 20
    assert settings["delivery.timeout.ms"] == 30_000
