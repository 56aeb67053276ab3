"""The status of each worker in shared memory: oldest request in flight, memory, heartbeat.

The service reports the minimum over its workers, so a worker that hangs holds back the report. A
worker that has exited answers no more requests, so its row is removed.

    word 0              1 once the service's first report is in the queue: workers may accept events
    words 1 + 5 i …     worker i: in use, oldest request (Unix milliseconds), bytes and number of
                        requests in flight, number of heartbeats
"""

from __future__ import annotations

import dataclasses
import mmap
from pathlib import Path
from typing import Final

from hourmark.clock import Clock
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX

_WORD: Final = 8  # written at once by every machine that this runs on
_REPORTED: Final = 0
SLOTS: Final = 256  # workers that run, and as many that drain while others take their place
_WORDS: Final = 5
_IN_USE, _OLDEST, _BYTES, _REQUESTS, _HEARTBEATS = range(_WORDS)
_SIZE: Final = _WORD * (1 + _WORDS * SLOTS)


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The status that a worker process publishes to its supervisor in shared memory.

    Attributes:
        oldest_ms: Start of the oldest request in flight, or the current time if there is none, in
            Unix milliseconds.
        bytes: Memory of the requests in flight, in bytes.
        requests: Number of requests in flight.
        heartbeats: Number of updates so far. It stops increasing if the worker hangs.
    """

    oldest_ms: int
    bytes: int = 0
    requests: int = 0
    heartbeats: int = 0


class WorkerStatusTable:
    """A table in shared memory with one row (slot) for the status of each worker process.

    The table is a memory-mapped file. The supervisor creates the file, and the workers open it.
    Each worker writes only its own slot.

    Args:
        path: The memory-mapped file.
        clock: Source of the current time.
        create: Whether to create the file, replacing an existing one.
    """

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
        """Return whether the service has stored its first host report in Kafka.

        A host report states the time up to which the service has answered all requests. Workers
        reject events until the first report is stored.
        """
        return bool(self._words[_REPORTED])

    def mark_reported(self) -> None:
        """Record that the service has stored its first host report in Kafka.

        A host report states the time up to which the service has answered all requests. `reported`
        becomes true for all workers, and they begin to accept events. This cannot be undone.
        """
        self._words[_REPORTED] = 1

    def allocate_slot(self) -> int:
        """Reserve a free slot for a new worker and return its index.

        Until the worker writes its status, the slot contains the current result of `oldest_ms`, so
        that the service does not report requests of the new worker as answered too early.

        Raises:
            StopIteration: If all 256 slots are in use.
        """
        slot = next(i for i in range(SLOTS) if not self._words[self._at(i, _IN_USE)])
        self.update(slot, WorkerStatus(self.oldest_ms()))
        self._words[self._at(slot, _IN_USE)] = 1
        return slot

    def release_slot(self, slot: int) -> None:
        """Release the slot of a worker that has exited, so that a new worker can use it.

        The requests of the exited worker are no longer included in `requests`, `bytes` and
        `oldest_ms`.

        Args:
            slot: Index of the worker's slot, as returned by `allocate_slot`.
        """
        self._words[self._at(slot, _IN_USE)] = 0

    def count_unanswered_worker(self) -> None:
        """Record that a worker process exited during shutdown without answering all its requests.

        Afterwards, `requests` is never 0. The service therefore does not send its final report,
        which would state that all requests have been answered.
        """
        self._unanswered += 1

    def update(self, slot: int, status: WorkerStatus) -> None:
        """Store the current status of a worker.

        Args:
            slot: Index of the worker's slot, as returned by `allocate_slot`.
            status: Current status of the worker.
        """
        self._words[self._at(slot, _BYTES)] = status.bytes
        self._words[self._at(slot, _REQUESTS)] = status.requests
        self._words[self._at(slot, _OLDEST)] = status.oldest_ms
        self._words[self._at(slot, _HEARTBEATS)] = status.heartbeats

    def get(self, slot: int) -> WorkerStatus:
        """Return the latest status of the worker in a slot.

        Args:
            slot: Index of the worker's slot, as returned by `allocate_slot`.
        """
        return WorkerStatus(
            *(
                self._words[self._at(slot, word)]
                for word in (_OLDEST, _BYTES, _REQUESTS, _HEARTBEATS)
            )
        )

    def oldest_ms(self) -> int:
        """Return the time up to which all requests have been answered, in Unix milliseconds.

        The result is the minimum over all workers, or the current time if there are none. It
        decreases only if the clock was set back by more than `CLOCKS_APART_MS_MAX`.
        """
        claim = min((claim.oldest_ms for claim in self._all()), default=self._clock.now_ms())
        if self._claimed_ms - claim > CLOCKS_APART_MS_MAX:
            self._claimed_ms = claim
        self._claimed_ms = max(self._claimed_ms, claim)
        return self._claimed_ms

    @property
    def bytes(self) -> int:
        """Return the total memory of the requests in flight in all workers, in bytes.

        Slots of workers that have exited are not included after `release_slot`.
        """
        return sum(claim.bytes for claim in self._all())

    @property
    def requests(self) -> int:
        """Return the number of unanswered requests in all workers.

        Each call of `count_unanswered_worker` permanently increases the result by one.
        """
        return self._unanswered + sum(claim.requests for claim in self._all())

    def _all(self) -> list[WorkerStatus]:
        return [self.get(slot) for slot in range(SLOTS) if self._words[self._at(slot, _IN_USE)]]

    def _at(self, slot: int, word: int) -> int:
        return 1 + _WORDS * slot + word
