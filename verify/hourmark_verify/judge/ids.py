"""Finds ids that occur twice, in 16 bytes an id."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


class IdSet:
    """Collects ids."""

    def __init__(self) -> None:
        self._ids = bytearray()

    def add(self, event_id: bytes) -> None:
        """Take an id of 16 bytes."""
        assert len(event_id) == 16
        self._ids += event_id

    def twice(self) -> Iterator[bytes]:
        """Each id that was added before, once for every time it was added again.

        Nothing is added any more: sorts in place.
        """
        ids = np.frombuffer(self._ids, dtype="S16")
        ids.sort()
        return (
            again.ljust(16, b"\0") for again in ids[1:][ids[1:] == ids[:-1]]
        )  # NumPy leaves out zeros at the end
