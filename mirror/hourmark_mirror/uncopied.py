"""When the first record that is not copied was written, of partitions that are behind: a look reads some of them, in turns.

A partition that stands still is read once. Of one that moves, what is told until its turn comes again is the time of a record
that was copied meanwhile: older by a few looks, so an alarm may be over late, and is never missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hourmark.kafka import Partition

READ_MAX: Final = 100  # records of a look


class Uncopied:
    """What was read of which partition: offset and time (Unix ms; None where no record stands there), the oldest first."""

    def __init__(self) -> None:
        self._read: dict[Partition, tuple[int, int | None]] = {}

    def due(self, behind: Mapping[Partition, int]) -> dict[Partition, int]:
        """Of which to read now: partition → offset. `behind`: the first offset that is not copied, the most urgent first.

        What is not behind is forgotten. Those never read come first, then those that moved, the one read longest ago before.
        """
        self._read = {p: read for p, read in self._read.items() if p in behind}
        new = [p for p in behind if p not in self._read]
        moved = [p for p, (offset, _) in self._read.items() if offset != behind[p]]
        return {p: behind[p] for p in [*new, *moved][:READ_MAX]}

    def told(self, asked: Mapping[Partition, int], times_ms: Mapping[Partition, int]) -> dict[Partition, int]:
        """The times of all partitions that are behind, as far as they were ever read. `times_ms`: what was read now."""
        for p, offset in asked.items():
            self._read.pop(p, None)
            self._read[p] = offset, times_ms.get(p)
        return {p: time_ms for p, (_, time_ms) in self._read.items() if time_ms is not None}
