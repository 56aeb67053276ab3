"""The interface of the durable queue.

`kafka_queue` implements it on Kafka; tests use an implementation in memory
(`tests.support.memory_queue`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from hourmark_delivery_service.message import Message


class Queue(Protocol):
    """A durable queue of records. Many tasks of one event loop may use it concurrently."""

    async def append(self, messages: Mapping[str, Sequence[Message]]) -> None:
        """Append records and return once all of them are stored on all in-sync replicas.

        Waits while the queue's memory is full, up to its time limit. Records are never dropped
        silently.

        Args:
            messages: Records to append, by topic.

        Raises:
            QueueUnavailable: If the queue does not accept the records.
            NotDelivered: If delivery failed or timed out. After either error some of the records
                may have been stored, and the caller must not acknowledge any of them.
        """
        ...

    async def problems(self, topics: Sequence[str]) -> list[str]:
        """Return the reasons why `append` to one of these topics cannot succeed now.

        Never raises, and returns within a few seconds.

        Returns:
            One message per problem, or an empty list if `append` can succeed.
        """
        ...

    async def close(self, timeout_s: float) -> None:
        """Deliver pending records for at most `timeout_s` seconds, then release all resources."""
        ...
