"""Finds ids that occur twice, in 16 bytes an id."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


class IdSet:
    """A collection of 16-byte ids that finds duplicates."""

    def __init__(self) -> None:
        self._ids = bytearray()

    def add(self, event_id: bytes) -> None:
        """Add an id of exactly 16 bytes."""
        assert len(event_id) == 16
        self._ids += event_id

    def twice(self) -> Iterator[bytes]:
        """Return an iterator over duplicate ids, in ascending order.

        An id that was added n times occurs n - 1 times. The stored ids are sorted in place; do not
        call `add` afterwards.
        """
        ids = np.frombuffer(self._ids, dtype="S16")
        ids.sort()
        return (
            again.ljust(16, b"\0") for again in ids[1:][ids[1:] == ids[:-1]]
        )  # NumPy leaves out zeros at the end
