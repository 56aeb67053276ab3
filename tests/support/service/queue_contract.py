"""What every implementation of the queue port must do; run over memory and over a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from hourmark_delivery_service.message import Message
from hourmark_delivery_service.queue.port import Queue


class ReadableQueue(Protocol):
    """A queue under test, and how to look into it."""

    @property
    def queue(self) -> Queue: ...

    @property
    def topics(self) -> Sequence[str]: ...

    def read(self, topic: str) -> list[tuple[bytes, bytes]]:
        """Key and value of all records of the topic."""
        ...


def messages(records: Sequence[tuple[bytes, bytes]]) -> list[Message]:
    """As the queue takes them."""
    return [{"key": key, "value": value} for key, value in records]


Check = Callable[[ReadableQueue], Coroutine[Any, Any, None]]


async def all_of_an_append_is_there_when_it_returns(it: ReadableQueue) -> None:
    records = [(b"k%d" % n, b"v%d" % n) for n in range(5000)]
    await it.queue.append(
        {it.topics[0]: messages(records[:3000]), it.topics[1]: messages(records[3000:])}
    )
    assert set(records[:3000]) <= set(it.read(it.topics[0]))
    assert set(records[3000:]) <= set(it.read(it.topics[1]))


async def appends_at_the_same_time_do_not_mix(it: ReadableQueue) -> None:
    batches = [messages([(b"b%d" % b, b"%d" % n) for n in range(50)]) for b in range(20)]
    await asyncio.gather(*(it.queue.append({it.topics[0]: batch}) for batch in batches))
    found = [r for r in it.read(it.topics[0]) if r[0].startswith(b"b")]
    assert len(found) == len(set(found)) == 1000


async def nothing_to_append_is_fine(it: ReadableQueue) -> None:
    await it.queue.append({})
    await it.queue.append({it.topics[0]: []})


async def large_records_are_taken(it: ReadableQueue) -> None:
    value = bytes(6 << 20)
    await it.queue.append({it.topics[1]: messages([(b"large", value)])})
    assert any(key == b"large" and found == value for key, found in it.read(it.topics[1]))


async def a_healthy_queue_has_no_problems(it: ReadableQueue) -> None:
    assert await it.queue.problems(it.topics) == []


CHECKS: tuple[Check, ...] = (
    all_of_an_append_is_there_when_it_returns,
    appends_at_the_same_time_do_not_mix,
    nothing_to_append_is_fine,
    large_records_are_taken,
    a_healthy_queue_has_no_problems,
)
