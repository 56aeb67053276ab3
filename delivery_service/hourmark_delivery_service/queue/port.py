"""The interface of the durable queue.

`kafka_queue` implements it on Kafka; tests use an implementation in memory
(`tests.support.memory_queue`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from hourmark_delivery_service.message import Message


class Queue(Protocol):
    """The interface of a durable queue, such as Kafka, that stores records by topic.

    A record counts as stored once all in-sync replicas have it. Many tasks of one event loop may
    use a queue concurrently. `KafkaQueue` implements it.
    """

    async def append(self, messages: Mapping[str, Sequence[Message]]) -> None:
        """Append records and return once all of them are stored on all in-sync replicas.

        Waits up to the queue's time limit while its memory is full. The caller may acknowledge the
        records only if this method returns without an error.

        Args:
            messages: Records to append, by topic. Each record is a dict with `key` and `value`.

        Raises:
            QueueUnavailable: If the queue does not accept the records. Some may have been stored.
            NotDelivered: If delivery failed or timed out. Some records may have been stored.
            TopicUnavailable: If one of the topics cannot take records, while the queue as a whole
                works. Records of the other topics may have been stored.
        """
        ...

    async def problems(self, topics: Sequence[str]) -> list[str]:
        """Return the reasons why appending to the given topics cannot succeed now.

        Responds within a few seconds and never raises an exception.

        Args:
            topics: Names of the topics to check.

        Returns:
            One message per problem, or an empty list if no problem was found.
        """
        ...

    async def topic_problems(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Return the given topics that cannot take records now, with the reason for each.

        Appends to other topics are not affected. Responds within a few seconds and never raises an
        exception.

        Args:
            topics: Names of the topics to check.

        Returns:
            Messages with the operator's next step, by topic. Empty if there is no problem, or if
            the queue as a whole does not respond, which `problems` reports.
        """
        ...

    async def close(self, timeout_s: float) -> None:
        """Deliver pending records, then release all resources.

        Args:
            timeout_s: Maximum time for the delivery in seconds. Records that are pending afterwards
                are discarded.
        """
        ...
