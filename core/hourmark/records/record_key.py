"""The Kafka key of an event: 24 bytes, event id then range id.

Duplicates, hour and origin are told without decoding the value.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hourmark.records.event_id import SIZE as EVENT_ID_SIZE
from hourmark.records.event_id import EventId
from hourmark.records.ranges import RangeId

KEY_SIZE: Final = EVENT_ID_SIZE + 8


class RecordKey(NamedTuple):
    """Which event, and in which range it was delivered."""

    event_id: EventId
    range_id: RangeId

    def encode(self) -> bytes:
        """The 24 bytes."""
        return bytes(self.event_id) + bytes(self.range_id)

    @classmethod
    def decode(cls, key: bytes) -> RecordKey:
        """The inverse of `encode`; ValueError for any other length."""
        if len(key) != KEY_SIZE:
            raise ValueError(f"an event's key has {KEY_SIZE} bytes, not {len(key)}")
        return cls(EventId(key[:EVENT_ID_SIZE]), RangeId(key[EVENT_ID_SIZE:]))
