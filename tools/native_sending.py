"""Random test of the native Kafka sender with librdkafka's mock cluster.

Some appends are abandoned; some exceed the memory of the producer.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from typing import Final

from hourmark.config.loading import Config
from hourmark_delivery_service.errors import QueueError
from hourmark_delivery_service.message import END_SIZE, Chunk, Messages, PackedMessages
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.queue.kafka_queue import KafkaQueue
from hourmark_delivery_service.queue.running_producer import make_producer

_APPENDS: Final = 40


def packed(rng: random.Random) -> PackedMessages:
    """Return records of random sizes in packed form."""
    values = [
        rng.randbytes(rng.choice((1, 30, 240, 5000)))
        for _ in range(rng.choice((1, 7, 255, 256, 257, 700)))
    ]
    ends, size = [], 0
    for value in values:
        size += len(value)
        ends.append(size)
    as_bytes = memoryview(b"".join(end.to_bytes(END_SIZE, "little") for end in ends))
    return PackedMessages(rng.randbytes(24 * len(values)), b"".join(values), as_bytes.tobytes())


async def send_at_random(seed: int) -> int:
    """Send random appends and return how many of them were acknowledged.

    The memory of an append must stay valid until librdkafka has finished with it.

    Args:
        seed: Seed of the random appends.
    """
    rng = random.Random(seed)
    settings = {
        "test.mock.num.brokers": 3,
        "queue.buffering.max.messages": rng.choice((100, 1000, 100_000)),
    }
    if rng.random() < 0.3:
        settings["message.max.bytes"] = 4000
    queue = KafkaQueue(
        Config(service={"delivery_timeout_seconds": 3}),
        ServiceMetrics(),
        lambda all_of_it: make_producer({**all_of_it, **settings}),
    )
    assert queue._current.supports_packed
    done = sum(await asyncio.gather(*(_append(queue, rng) for _ in range(_APPENDS))))
    await queue.close(rng.choice((0, 2)))
    return done


async def _append(queue: KafkaQueue, rng: random.Random) -> bool:
    messages = Messages()
    for _ in range(rng.randint(1, 3)):
        chunk: Chunk = packed(rng) if rng.random() < 0.8 else [{"key": b"k", "value": b"v"}]
        messages.add(chunk)
    append = asyncio.create_task(queue.append({"t": messages}))
    del messages
    await asyncio.sleep(rng.random() / 50)
    if rng.random() < 0.2:
        append.cancel()
    with contextlib.suppress(asyncio.CancelledError, QueueError):
        await append
        return True
    gc.collect(0)
    return False
