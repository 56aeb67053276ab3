"""Packed records, handed to librdkafka without an object each: against its own mock cluster, in
this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from tests.support.service.harness import Test, with_scene

from hourmark.config.loading import Config
from hourmark_delivery_service.errors import NotDelivered, QueueUnavailable
from hourmark_delivery_service.message import END_SIZE, Message, Messages, PackedMessages
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.parsing import native
from hourmark_delivery_service.queue.kafka_queue import KafkaQueue
from hourmark_delivery_service.queue.running_producer import make_producer

pytestmark = pytest.mark.skipif(native.MODULE is None, reason="there is no compiled module")
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
MOCK = {"test.mock.num.brokers": 3}


def packed(records: list[tuple[bytes, bytes]]) -> PackedMessages:
    ends, size = [], 0
    for _, value in records:
        size += len(value)
        ends.append(size)
    keys, values = b"".join(key for key, _ in records), b"".join(value for _, value in records)
    return PackedMessages(
        keys,
        values,
        memoryview(b"".join(end.to_bytes(END_SIZE, "little") for end in ends)).tobytes(),
    )


def records_of(seed: int, count: int) -> list[tuple[bytes, bytes]]:
    return [(b"%012d%012d" % (seed, n), b"value %d of %d" % (n, seed)) for n in range(count)]


class Scene:
    """A queue, and who reads what it has."""

    def __init__(self, **given: Any) -> None:
        self.metrics = ServiceMetrics()
        self.settings: list[dict[str, Any]] = []  # of each producer that was made
        self.producers: list[Producer] = []

        def make(settings: dict[str, Any]) -> Producer:
            self.settings.append({**settings, **given})
            self.producers.append(make_producer(self.settings[-1]))
            return self.producers[-1]

        self.queue = KafkaQueue(Config(service={"delivery_timeout_seconds": 5}), self.metrics, make)

    async def append(self, *chunks: PackedMessages | list[Message], topic: str = "t") -> None:
        messages = Messages()
        for chunk in chunks:
            messages.add(chunk)
        await self.queue.append({topic: messages})

    def read(self, count: int, topic: str = "t", within_s: float = 20) -> list[tuple[bytes, bytes]]:
        brokers = self.producers[0].list_topics(timeout=5).brokers.values()
        servers = ",".join(f"{one.host}:{one.port}" for one in brokers)
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        found: list[tuple[bytes, bytes]] = []
        until = time.monotonic() + within_s
        while len(found) < count and time.monotonic() < until:
            found += [
                (one.key() or b"", one.value() or b"")
                for one in consumer.consume(1000, 0.2)
                if one.error() is None
            ]
        consumer.close()
        return found

    def failed(self, error: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "hourmark_service_produce_errors_total", {"error": error}
        )


def with_queue(**settings: Any) -> Callable[[Callable[..., Awaitable[None]]], Test]:
    """The test gets a queue, its producer with these settings."""

    @contextlib.asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        scene = Scene(**given)
        assert native.MODULE is not None
        assert native.MODULE.__file__ in scene.settings[-1]["plugin.library.paths"]
        yield scene
        await scene.queue.close(1)

    return with_scene(scene)


@with_queue(**{"test.mock.num.brokers": 3})
async def test_packed_records_and_others_arrive_whole(scene: Scene) -> None:
    first, second = records_of(1, 3000), records_of(2, 10)
    await scene.append(packed(first), [{"key": b"k", "value": b"v"}], packed(second))
    assert sorted(await asyncio.to_thread(scene.read, 3011)) == sorted(
        [*first, (b"k", b"v"), *second]
    )


@with_queue(**{"test.mock.num.brokers": 3})
async def test_appends_at_the_same_time_do_not_mix(scene: Scene) -> None:
    batches = [records_of(seed, 200) for seed in range(30)]
    await asyncio.gather(*(scene.append(packed(batch)) for batch in batches))
    gc.collect()
    assert sorted(await asyncio.to_thread(scene.read, 6000)) == sorted(
        record for batch in batches for record in batch
    )


@pytest.mark.slow
@with_queue(**{"test.mock.num.brokers": 3})
async def test_the_very_same_records_may_be_under_way_twice(scene: Scene) -> None:
    once = records_of(1, 500)
    same = packed(once)
    await asyncio.gather(scene.append(same), scene.append(same), scene.append(same))
    assert sorted(await asyncio.to_thread(scene.read, 1500)) == sorted(once * 3)


@with_queue(**{"test.mock.num.brokers": 3, "queue.buffering.max.messages": 100})
async def test_a_full_memory_makes_them_wait_and_loses_none(scene: Scene) -> None:
    some = records_of(1, 1000)
    await scene.append(packed(some))
    found = await asyncio.to_thread(scene.read, 1000)
    assert sorted(found) == sorted(some)


@with_queue(**{"test.mock.num.brokers": 3, "test.mock.broker.rtt": 300})
async def test_a_slow_broker_costs_no_cpu_while_more_records_wait(scene: Scene) -> None:
    """librdkafka's thread would spin."""
    await scene.append(packed(records_of(0, 10)))
    began, began_cpu = time.monotonic(), time.process_time()
    appends = [
        asyncio.create_task(scene.append(packed(records_of(seed, 200)))) for seed in range(1, 3)
    ]
    for seed in range(3, 9):
        await asyncio.sleep(0.03)
        appends.append(asyncio.create_task(scene.append(packed(records_of(seed, 200)))))
    await asyncio.gather(*appends)
    assert time.monotonic() - began > 0.5
    assert time.process_time() - began_cpu < 0.25 * (time.monotonic() - began)


@with_queue(**{**NOWHERE, "message.timeout.ms": 300})
async def test_records_that_were_not_delivered_fail_their_append(scene: Scene) -> None:
    with pytest.raises(NotDelivered):
        await scene.append(packed(records_of(1, 700)))
    await asyncio.sleep(0.1)
    assert scene.failed("_MSG_TIMED_OUT") == 700


@pytest.mark.slow
@with_queue(**{**NOWHERE, "message.timeout.ms": 60_000, "queue.buffering.max.messages": 10})
async def test_a_memory_that_stays_full_fails_the_append(scene: Scene) -> None:
    with pytest.raises(QueueUnavailable, match="buffer is full"):
        await scene.append(packed(records_of(1, 11)))


@with_queue(**{"test.mock.num.brokers": 3, "message.max.bytes": 1000})
async def test_a_record_that_librdkafka_refuses_fails_the_append_and_no_other(scene: Scene) -> None:
    large = [*records_of(1, 10), (b"l" * 24, bytes(2000)), *records_of(2, 10)]
    with pytest.raises(QueueUnavailable, match="rejects"):
        await scene.append(packed(large))
    await scene.append(packed(records_of(3, 10)))
    assert scene.failed(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE).name()) == 1


@with_queue(**{**NOWHERE, "message.timeout.ms": 60_000})
async def test_a_purged_producer_fails_what_is_under_way(scene: Scene) -> None:
    waiting = asyncio.create_task(scene.append(packed(records_of(1, 300))))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    scene.settings[0]["error_cb"](KafkaError(KafkaError._FATAL))  # the queue replaces and purges it
    with pytest.raises(NotDelivered):
        await waiting


@pytest.mark.slow
@with_queue(**{"test.mock.num.brokers": 1})
async def test_an_abandoned_append_leaves_no_dangling_values(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(20):
        waiting = asyncio.create_task(scene.append(packed(records_of(seed, 500))))
        await asyncio.sleep(0.001)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
    gc.collect()
    await scene.queue.close(5)
    assert "were not delivered" not in caplog.text, "all of them have landed"
    expected = await asyncio.to_thread(scene.read, 20 * 500, within_s=8)
    assert expected, "some had been given to the queue before"
    assert set(expected) <= {record for seed in range(20) for record in records_of(seed, 500)}


@pytest.mark.parametrize(
    ("keys", "values", "ends", "at"),
    [
        (bytes(24), b"v", b"", 0),
        (bytes(23), b"v", b"\x01\0\0\0", 0),
        (bytes(48), b"v", b"\x01\0\0\0\x01\0\0\0", 0),
        (bytes(24), b"vv", b"\x01\0\0\0", 0),
        (bytes(24), b"v", b"\x01\0\0\0", 1),
        (bytes(24), b"v", b"\xff\0\0\0", 0),
    ],
)
def test_records_that_are_not_whole_are_refused(
    keys: bytes, values: bytes, ends: bytes, at: int
) -> None:
    assert native.MODULE is not None
    producer = make_producer({**MOCK, "plugin.library.paths": native.MODULE.__file__})
    sender = native.MODULE.sender()
    with pytest.raises(ValueError, match="records have keys"):
        native.MODULE.send(sender, b"t", keys, values, ends, at, 1, lambda *_: None)
    assert producer.flush(1) == 0


def test_packed_records_read_as_messages() -> None:
    some = records_of(1, 5)
    found = packed(some)
    assert len(found) == 5
    assert [(one["key"], one["value"]) for one in found] == some
    assert found[-1] == {"key": some[-1][0], "value": some[-1][1]}
    assert found[1:3] == [found[1], found[2]]
    with pytest.raises(IndexError):
        found[5]
