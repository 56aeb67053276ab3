"""Finds ids that occur twice, in 16 bytes an id."""

from __future__ import annotations

from collections.abc import Iterator

_SIZE = 16


class IdSet:
    """Collects ids by their last byte, so that only a 256th of them is ever compared at a time."""

    def __init__(self) -> None:
        self._parts = [bytearray() for _ in range(256)]

    def add(self, event_id: bytes) -> None:
        """Take an id of 16 bytes."""
        assert len(event_id) == _SIZE
        self._parts[event_id[-1]] += event_id

    def twice(self) -> Iterator[bytes]:
        """Each id that was added before, once for every time it was added again."""
        for part in self._parts:
            seen: set[bytes] = set()
            for at in range(0, len(part), _SIZE):
                event_id = bytes(part[at : at + _SIZE])
                if event_id in seen:
                    yield event_id
                seen.add(event_id)
