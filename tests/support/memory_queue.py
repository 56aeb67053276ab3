"""The queue in memory: for tests. It keeps the port's promises, and breaks them when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hourmark_delivery_service.errors import QueueError
from hourmark_delivery_service.message import Message


class Appended(NamedTuple):
    """A record that was appended."""

    topic: str
    key: bytes
    value: bytes


class MemoryQueue:
    """Holds records in the order in which they were appended.

    `fail_with`: raised by `append`, after `fail_after` more records were taken. `hold`: appends
    wait until it is set.
    """

    def __init__(self) -> None:
        self.records: list[Appended] = []
        self.fail_with: QueueError | None = None
        self.fail_after = 0
        self.hold: asyncio.Event | None = None
        self.missing: list[str] = []
        self.closed = False

    async def append(self, messages: Mapping[str, Sequence[Message]]) -> None:
        if self.hold is not None:
            await self.hold.wait()
        for topic, message in (
            (topic, message) for topic, some in messages.items() for message in some
        ):
            if self.fail_with is not None:
                if self.fail_after == 0:
                    raise self.fail_with
                self.fail_after -= 1
            self.records.append(Appended(topic, message["key"], message["value"]))

    async def problems(self, topics: Sequence[str]) -> list[str]:  # the port's signature
        return list(self.missing)

    async def topic_problems(self, topics: Sequence[str]) -> Mapping[str, str]:
        return {}

    async def close(self, timeout_s: float) -> None:
        self.closed = True

    def of(self, topic: str) -> list[Appended]:
        """The records of one topic."""
        return [record for record in self.records if record.topic == topic]
