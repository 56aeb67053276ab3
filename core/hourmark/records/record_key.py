"""The Kafka key of an event: 24 bytes, the event id followed by the range id.

It identifies duplicates, the hour and the origin of an event without decoding its value.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hourmark.records.event_id import SIZE as EVENT_ID_SIZE
from hourmark.records.event_id import EventId
from hourmark.records.ranges import RangeId

KEY_SIZE: Final = EVENT_ID_SIZE + 8


class RecordKey(NamedTuple):
    """The Kafka key of an event: its event id, and the id of the byte range that contained it."""

    event_id: EventId
    range_id: RangeId

    def encode(self) -> bytes:
        """Return the key's 24 bytes."""
        return bytes(self.event_id) + bytes(self.range_id)

    @classmethod
    def decode(cls, key: bytes) -> RecordKey:
        """Parse the key of an event.

        Raises:
            ValueError: The key does not have 24 bytes.
        """
        if len(key) != KEY_SIZE:
            raise ValueError(f"an event's key has {KEY_SIZE} bytes, not {len(key)}")
        return cls(EventId(key[:EVENT_ID_SIZE]), RangeId(key[EVENT_ID_SIZE:]))
