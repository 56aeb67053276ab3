"""The port to the durable queue. Kafka stands behind it (`kafka_queue`); tests put memory there (`memory_queue`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class QueueRecord(NamedTuple):
    """A record and where it belongs."""

    topic: str
    key: bytes
    value: bytes


class Queue(Protocol):
    """Takes records for good. Safe to use from many tasks of one event loop."""

    async def append(self, records: Sequence[QueueRecord], timestamp_ms: int) -> None:
        """Return once ALL `records` are on all in-sync replicas, stamped with `timestamp_ms`.

        Raises QueueUnavailable or NotDelivered otherwise; then any of them may or may not be there, and the caller must not
        acknowledge. Records are never dropped in silence. Waits while the queue's memory is full, within its time limit.
        """
        ...

    async def problems(self, topics: Sequence[str]) -> list[str]:
        """Why `append` to one of these topics cannot succeed now; empty if it can. Never raises, answers within seconds."""
        ...

    async def close(self, timeout_s: float) -> None:
        """Deliver what is still under way, wait for it at most `timeout_s`, then give up all resources."""
        ...
