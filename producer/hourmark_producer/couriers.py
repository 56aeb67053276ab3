"""Threads that carry ranges of files which have more to send, so that several of one file are on their way at a time.

Each sender thread has one range in its hands; these have as many more, over all files. So memory is bounded by the number of
threads, whatever the number of files. Where all are busy nobody waits for one: the sender carries the range itself.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from hourmark.wire import RangeAnswer
from hourmark_producer.files import Outgoing

COURIERS: Final = 4  # as the senders, they wait most of the time; memory: a compressed range each


class Couriers:
    """Daemon threads, as a request may last longer than a tailer that is told to stop. Safe to use from several threads."""

    def __init__(self, count: int = COURIERS) -> None:
        self._idle = threading.Semaphore(count)
        self._left = count  # threads that were not needed yet
        self._starting = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def take(self, work: Callable[[], None]) -> bool:
        """Whether one is free and does it. `work` raises nothing."""
        if not self._idle.acquire(blocking=False):
            return False
        with self._starting:
            if self._left:
                self._left -= 1
                threading.Thread(target=self._run, name=f"courier-{self._left}", daemon=True).start()
        self._work.put(work)
        return True

    def _run(self) -> None:
        while True:
            self._work.get()()
            self._idle.release()


class Flight:
    """What one step of a file has under way with couriers. Used by one thread."""

    def __init__(self, couriers: Couriers) -> None:
        self._couriers = couriers
        self._landed: queue.SimpleQueue[tuple[Outgoing, RangeAnswer | Exception]] = queue.SimpleQueue()
        self.aloft = 0

    def start(self, outgoing: Outgoing, send: Callable[[], RangeAnswer]) -> bool:
        """Whether a courier sends it; then it must `land`."""

        def carry() -> None:
            answer: RangeAnswer | Exception
            try:
                answer = send()
            except Exception as error:  # noqa: BLE001  # raised where it lands
                answer = error
            self._landed.put((outgoing, answer))

        taken = self._couriers.take(carry)
        self.aloft += taken
        return taken

    @property
    def has_landed(self) -> bool:
        """Whether `land` returns at once."""
        return not self._landed.empty()

    def land(self) -> tuple[Outgoing, RangeAnswer | Exception]:
        """Wait for one, whichever is first."""
        outgoing, answer = self._landed.get()
        self.aloft -= 1
        return outgoing, answer
