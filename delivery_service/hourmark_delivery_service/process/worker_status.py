"""What each worker claims, in memory that all share: since when its oldest request is under way,
and what it holds.

The service's claim is the least of its workers': one that hangs holds it, as it does not say
anything newer. A worker that is gone answers nobody any more, so its claim goes with it.

    word 0              1 once the service's first report is in the queue: workers may take events
    words 1 + 5 i …     of worker i: in use, claim (Unix milliseconds), bytes and number of requests under way, how often it told
"""

from __future__ import annotations

import dataclasses
import mmap
from pathlib import Path
from typing import Final

from hourmark.clock import Clock

_WORD: Final = 8  # written at once by every machine that this runs on
_REPORTED: Final = 0
SLOTS: Final = 256  # workers that run, and as many that drain while others take their place
_WORDS: Final = 5
_IN_USE, _CLAIM, _BYTES, _REQUESTS, _TOLD = range(_WORDS)
_SIZE: Final = _WORD * (1 + _WORDS * SLOTS)


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What one worker says; `told`: how often it has, so that one that hangs is noticed."""

    oldest_ms: int
    bytes: int = 0
    requests: int = 0
    heartbeats: int = 0


class WorkerStatusTable:
    """The shared words, in a file that is made anew by whoever holds the service's identity."""

    def __init__(self, path: Path, clock: Clock, *, create: bool) -> None:
        if create:
            path.unlink(missing_ok=True)
            path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), _SIZE)).cast("q")
        self.path = path
        self._clock = clock
        self._claimed_ms = 0
        self._unanswered = 0

    @property
    def reported(self) -> bool:
        """Whether the service's first report is in the queue."""
        return bool(self._words[_REPORTED])

    def mark_reported(self) -> None:
        """It is, once and for all."""
        self._words[_REPORTED] = 1

    def allocate_slot(self) -> int:
        """A slot for a worker that is about to start: it claims what all have claimed so far, until
        it says more.
        """
        slot = next(i for i in range(SLOTS) if not self._words[self._at(i, _IN_USE)])
        self.update(slot, WorkerStatus(self.oldest_ms()))
        self._words[self._at(slot, _IN_USE)] = 1
        return slot

    def release_slot(self, slot: int) -> None:
        """Its worker is gone."""
        self._words[self._at(slot, _IN_USE)] = 0

    def count_unanswered_worker(self) -> None:
        """A worker ended before it had answered everything, and none follows it: there is no
        goodbye after that.
        """
        self._unanswered += 1

    def update(self, slot: int, status: WorkerStatus) -> None:
        """What the slot's worker claims now."""
        self._words[self._at(slot, _BYTES)] = status.bytes
        self._words[self._at(slot, _REQUESTS)] = status.requests
        self._words[self._at(slot, _CLAIM)] = status.oldest_ms
        self._words[self._at(slot, _TOLD)] = status.heartbeats

    def get(self, slot: int) -> WorkerStatus:
        """What the slot's worker said last."""
        return WorkerStatus(
            *(self._words[self._at(slot, word)] for word in (_CLAIM, _BYTES, _REQUESTS, _TOLD))
        )

    def oldest_ms(self) -> int:
        """All that began earlier is answered, in every worker. Never less than it was."""
        claim = min((claim.oldest_ms for claim in self._all()), default=self._clock.now_ms())
        self._claimed_ms = max(self._claimed_ms, claim)
        return self._claimed_ms

    @property
    def bytes(self) -> int:
        """Of requests under way, in all workers."""
        return sum(claim.bytes for claim in self._all())

    @property
    def requests(self) -> int:
        """How many requests are under way in all workers, as they said last, or will never be
        answered.
        """
        return self._unanswered + sum(claim.requests for claim in self._all())

    def _all(self) -> list[WorkerStatus]:
        return [self.get(slot) for slot in range(SLOTS) if self._words[self._at(slot, _IN_USE)]]

    def _at(self, slot: int, word: int) -> int:
        return 1 + _WORDS * slot + word
