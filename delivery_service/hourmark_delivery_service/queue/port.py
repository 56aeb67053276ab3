"""The port to the durable queue: Kafka (`kafka_queue`), and in tests one in memory
(`tests.support.memory_queue`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from hourmark_delivery_service.message import Message


class Queue(Protocol):
    """Takes records for good. Safe to use from many tasks of one event loop."""

    async def append(self, messages: Mapping[str, Sequence[Message]]) -> None:
        """Return once ALL `messages`, by topic, are on all in-sync replicas, stamped with the time
        at which they came here.

        Raises QueueUnavailable or NotDelivered otherwise; then any of them may or may not be there,
        and the caller must not acknowledge. Records are never dropped in silence. Waits while the
        queue's memory is full, within its time limit.
        """
        ...

    async def problems(self, topics: Sequence[str]) -> list[str]:
        """Why `append` to one of these topics cannot succeed now; empty if it can.

        Never raises, answers within seconds.
        """
        ...

    async def close(self, timeout_s: float) -> None:
        """Deliver what is still under way, wait for it at most `timeout_s`, then give up all
        resources.
        """
        ...
