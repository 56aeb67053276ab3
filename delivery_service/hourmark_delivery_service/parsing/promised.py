"""What a range's records promise, gathered record by record: their ids, types, hours, and the hashes of their values."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from hourmark.audit import Promise, digest_of_ids, promises
from hourmark.event_id import SIZE, EventId
from hourmark.value_hash import value_hash
from hourmark_delivery_service.parsing import native

_HASH: Final = struct.Struct("=Q")
_PLACE: Final = struct.Struct("<II")  # a type's number, and the start of its hour in minutes: 4 bytes hold the year 9000
_SEED: Final = secrets.randbits(63)  # nobody can choose ids that are slow to compare


class Promised:
    """In the order of the records."""

    def __init__(self, types: Sequence[str]) -> None:
        """`types`: their names, by number."""
        self._types = types
        self._ids = bytearray()
        self._places = bytearray()
        self._hashes = bytearray()

    def __len__(self) -> int:
        return len(self._ids) // SIZE

    def add(self, type_number: int, hour_start_s: int, event_id: EventId, value: bytes) -> None:
        """Add a record; `value` is framed."""
        self._ids += event_id
        self._places += _PLACE.pack(type_number, hour_start_s // 60)
        self._hashes += _HASH.pack(value_hash(event_id, value))

    def extend(self, ids: bytes, places: bytes, hashes: bytes) -> None:
        """Add records as the native pass returns them."""
        self._ids += ids
        self._places += places
        self._hashes += hashes

    def places(self) -> Iterator[tuple[str, int]]:
        """Type and hour start of each record."""
        for number, minute in _PLACE.iter_unpack(self._places):
            yield self._types[number], 60 * minute

    def promises(self) -> tuple[Promise, ...]:
        """Return the promises of all records, sorted by type and hour."""
        if native.MODULE is None:
            ids = (EventId(bytes(self._ids[at : at + SIZE])) for at in range(0, len(self._ids), SIZE))
            hashes = (value for (value,) in _HASH.iter_unpack(self._hashes))
            return promises((*place, event_id, h) for place, event_id, h in zip(self.places(), ids, hashes, strict=True))
        found = native.MODULE.promises(bytes(self._ids), bytes(self._places), bytes(self._hashes), _SEED)
        return tuple(
            sorted(
                Promise(self._types[number], 60 * minute, count, total, checksum)
                for place, count, total, checksum in found
                for number, minute in (_PLACE.unpack(place),)
            )
        )

    def digest(self) -> bytes:
        """Of the ids."""
        return digest_of_ids((self._ids,))
