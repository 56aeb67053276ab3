"""Known and unknown losses, and the counters of a run.

A loss: bytes that are known to be destroyed unread, and occasions on which more may have been.

What is known is a number of bytes, and exact as far as sizes had been seen. What cannot be known is
`unknown`: a number of occasions, each with its file and time. It is never said to be 0 bytes.

What was done, in numbers. Losses are the checkpoint's, and never fall; the rest counts from the
start of the process.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from typing import NamedTuple

from hourmark.records.wire import RangeResponse


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One. `at_ms`: when it was noticed, by this host's clock, in Unix milliseconds."""

    source: str
    path: str
    at_ms: int
    bytes: int
    unknown: int
    what: str


class Losses(NamedTuple):
    """Those of one source. Neither ever falls."""

    bytes: int = 0
    unknown: int = 0


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

    def acknowledged(self, count: int, answer: RangeResponse, at_ms: int | None = None) -> None:
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
            self._losses[loss.source] = Losses(
                before.bytes + loss.bytes, before.unknown + loss.unknown
            )

    def losses(self, source: str) -> Losses:
        with self._lock:
            return self._losses.get(source, Losses())

    def losses_in_all(self) -> Losses:
        with self._lock:
            every = self._losses.values()
            return Losses(
                sum(losses.bytes for losses in every), sum(losses.unknown for losses in every)
            )
