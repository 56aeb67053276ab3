"""What was done, in numbers. Losses are the checkpoint's, and never fall; the rest counts from the start of the process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from hourmark.wire import RangeAnswer


class Counters:
    """Counters of one tailer. Safe to use from several threads."""

    def __init__(self, losses: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self._losses = Counter(losses)
        self.ranges = 0
        self.bytes = 0
        self.events = 0
        self.dead_letters = 0

    def acknowledged(self, count: int, answer: RangeAnswer) -> None:
        """A range of `count` bytes was delivered."""
        with self._lock:
            self.ranges += 1
            self.bytes += count
            self.events += answer.events
            self.dead_letters += answer.dead_letters

    def lost(self, source: str, count: int) -> None:
        """Bytes known lost; the checkpoint has them already."""
        with self._lock:
            self._losses[source] += count

    def lost_bytes(self, source: str) -> int:
        with self._lock:
            return self._losses[source]

    def lost_bytes_in_all(self) -> int:
        with self._lock:
            return self._losses.total()
