"""What was done, in numbers. Losses are the checkpoint's, and never fall; the rest counts from the start of the process."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from hourmark.wire import RangeAnswer
from hourmark_producer.losses import Loss, Losses


class Counters:
    """Counters of one tailer. Safe to use from several threads."""

    def __init__(self, losses: Mapping[str, Losses]) -> None:
        self._lock = threading.Lock()
        self._losses = dict(losses)
        self.ranges = 0
        self.bytes = 0
        self.events = 0
        self.dead_letters = 0
        self.delivered_at_ms: int | None = None

    def acknowledged(self, count: int, answer: RangeAnswer, at_ms: int | None = None) -> None:
        """A range of `count` bytes was delivered."""
        with self._lock:
            self.delivered_at_ms = at_ms
            self.ranges += 1
            self.bytes += count
            self.events += answer.events
            self.dead_letters += answer.dead_letters

    def lost(self, loss: Loss) -> None:
        """The checkpoint has it already."""
        with self._lock:
            before = self._losses.get(loss.source, Losses())
            self._losses[loss.source] = Losses(before.bytes + loss.bytes, before.unknown + loss.unknown)

    def losses(self, source: str) -> Losses:
        with self._lock:
            return self._losses.get(source, Losses())

    def losses_in_all(self) -> Losses:
        with self._lock:
            every = self._losses.values()
            return Losses(sum(losses.bytes for losses in every), sum(losses.unknown for losses in every))
