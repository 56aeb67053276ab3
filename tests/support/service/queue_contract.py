"""What every implementation of the queue port must do; run over memory and over a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from hourmark_delivery_service.queue import Queue, QueueRecord


class ReadableQueue(Protocol):
    """A queue under test, and how to look into it."""

    @property
    def queue(self) -> Queue: ...

    @property
    def topics(self) -> Sequence[str]: ...

    def read(self, topic: str) -> list[tuple[bytes, bytes, int]]:
        """Key, value, timestamp of all records of the topic."""
        ...


Check = Callable[[ReadableQueue], Coroutine[Any, Any, None]]


async def all_of_an_append_is_there_when_it_returns(it: ReadableQueue) -> None:
    records = [QueueRecord(it.topics[n % 2], b"k%d" % n, b"v%d" % n) for n in range(1000)]
    await it.queue.append(records, 1_795_000_000_123)
    found = {record for topic in it.topics for record in it.read(topic)}
    assert {(r.key, r.value, 1_795_000_000_123) for r in records} <= found


async def appends_at_the_same_time_do_not_mix(it: ReadableQueue) -> None:
    batches = [[QueueRecord(it.topics[0], b"b%d" % b, b"%d" % n) for n in range(50)] for b in range(20)]
    await asyncio.gather(*(it.queue.append(batch, 5) for batch in batches))
    found = [r for r in it.read(it.topics[0]) if r[0].startswith(b"b")]
    assert len(found) == len(set(found)) == 1000


async def nothing_to_append_is_fine(it: ReadableQueue) -> None:
    await it.queue.append([], 5)


async def large_records_are_taken(it: ReadableQueue) -> None:
    value = bytes(6 << 20)
    await it.queue.append([QueueRecord(it.topics[1], b"large", value)], 5)
    assert any(key == b"large" and found == value for key, found, _ in it.read(it.topics[1]))


async def a_healthy_queue_has_no_problems(it: ReadableQueue) -> None:
    assert await it.queue.problems(it.topics) == []


CHECKS: tuple[Check, ...] = (
    all_of_an_append_is_there_when_it_returns,
    appends_at_the_same_time_do_not_mix,
    nothing_to_append_is_fine,
    large_records_are_taken,
    a_healthy_queue_has_no_problems,
)
