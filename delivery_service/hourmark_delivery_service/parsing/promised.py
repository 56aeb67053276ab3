"""What a range's records promise, gathered record by record: their ids, and the types and hours that they are of."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from hourmark.audit import Promise, digest_of_ids, promises
from hourmark.event_id import SIZE, EventId
from hourmark_delivery_service.parsing import native

_PLACE: Final = struct.Struct("<II")  # a type's number, and the start of its hour in minutes: 4 bytes hold the year 9000
_SEED: Final = secrets.randbits(63)  # nobody can choose ids that are slow to compare


class Promised:
    """In the order of the records."""

    def __init__(self, types: Sequence[str]) -> None:
        """`types`: their names, by number."""
        self._types = types
        self._ids = bytearray()
        self._places = bytearray()

    def __len__(self) -> int:
        return len(self._ids) // SIZE

    def add(self, type_number: int, hour_start_s: int, event_id: EventId) -> None:
        """A record."""
        self._ids += event_id
        self._places += _PLACE.pack(type_number, hour_start_s // 60)

    def extend(self, ids: bytes, places: bytes) -> None:
        """Records as the native pass gives them."""
        self._ids += ids
        self._places += places

    def places(self) -> Iterator[tuple[str, int]]:
        """Type and hour start of each record."""
        for number, minute in _PLACE.iter_unpack(self._places):
            yield self._types[number], 60 * minute

    def promises(self) -> tuple[Promise, ...]:
        """What they amount to."""
        if native.MODULE is None:
            ids = (EventId(bytes(self._ids[at : at + SIZE])) for at in range(0, len(self._ids), SIZE))
            return promises((event_type, hour, event_id) for (event_type, hour), event_id in zip(self.places(), ids, strict=True))
        return tuple(
            sorted(
                Promise(self._types[number], 60 * minute, count, total)
                for place, count, total in native.MODULE.promises(bytes(self._ids), bytes(self._places), _SEED)
                for number, minute in (_PLACE.unpack(place),)
            )
        )

    def digest(self) -> bytes:
        """Of the ids."""
        return digest_of_ids((self._ids,))
