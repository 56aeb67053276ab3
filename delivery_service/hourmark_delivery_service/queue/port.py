"""The interface of the durable queue.

`kafka_queue` implements it on Kafka; tests use an implementation in memory
(`tests.support.memory_queue`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from hourmark_delivery_service.message import Message


class Queue(Protocol):
    """Interface of a durable queue, such as Kafka, that stores records by topic.

    A record is stored once all in-sync replicas have it. Tasks of one event loop may use a queue
    concurrently. `KafkaQueue` implements this interface.
    """

    async def append(self, messages: Mapping[str, Sequence[Message]]) -> None:
        """Append records, and return once all in-sync replicas have stored all of them.

        If the queue's memory is full, the method waits up to the queue's time limit. The caller may
        acknowledge the records only if this method returns without an error.

        Args:
            messages: Maps each topic to the records to append. A record is a dict with `key` and
                `value`.

        Raises:
            QueueUnavailable: If the queue does not accept the records. Some may have been stored.
            NotDelivered: If delivery failed or timed out. Some records may have been stored.
            TopicUnavailable: If one of the topics does not accept records, but the queue as a whole
                works. Records of the other topics may have been stored.
        """
        ...

    async def problems(self, topics: Sequence[str]) -> list[str]:
        """Return the reasons why appends to the given topics currently cannot succeed.

        The method returns within a few seconds and never raises an exception.

        Args:
            topics: Names of the topics to check.

        Returns:
            One message per problem, or an empty list if no problem was found.
        """
        ...

    async def topic_problems(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Return the given topics that currently do not accept records, with the reasons.

        Appends to other topics are not affected. The method returns within a few seconds and never
        raises an exception.

        Args:
            topics: Names of the topics to check.

        Returns:
            A mapping of topic names to messages with the next step for the operator. Empty if there
            is no problem, or if the queue as a whole does not respond (see `problems`).
        """
        ...

    async def close(self, timeout_s: float) -> None:
        """Deliver pending records, then release all resources.

        Args:
            timeout_s: Maximum time for the delivery in seconds. Records that are still pending then
                are discarded.
        """
        ...
