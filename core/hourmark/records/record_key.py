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
    """The Kafka key of an event: its event id and the id of the byte range that contained it.

    Attributes:
        event_id: The 16-byte event id.
        range_id: The 8-byte id of the byte range or API batch.
    """

    event_id: EventId
    range_id: RangeId

    def encode(self) -> bytes:
        """Return the 24 bytes of the Kafka key: the event id, then the range id."""
        return bytes(self.event_id) + bytes(self.range_id)

    @classmethod
    def decode(cls, key: bytes) -> RecordKey:
        """Parse the Kafka key of an event.

        Args:
            key: The 24 bytes that `encode` returns.

        Raises:
            ValueError: The key does not have 24 bytes.
        """
        if len(key) != KEY_SIZE:
            raise ValueError(f"an event's key has {KEY_SIZE} bytes, not {len(key)}")
        return cls(EventId(key[:EVENT_ID_SIZE]), RangeId(key[EVENT_ID_SIZE:]))
