"""Whose step is next: a queue of files, each in it at most once, and at most one worker at a
file.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable

from hourmark.clock import Clock
from hourmark_producer.files.tracked_file import TrackedFile


class Schedule:
    """Files that have something to do. Safe to use from several threads.

    A file is idle, ready, busy (a worker has it) or waits for a time. `add` of a file that is not
    idle is remembered: it becomes ready again after its step.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._ready: deque[TrackedFile] = deque()
        self._later: list[tuple[float, int, TrackedFile]] = []
        self._wakes: list[tuple[float, int, TrackedFile]] = []
        self._number = itertools.count()
        self._held: set[TrackedFile] = set()  # ready, busy or waiting
        self._again: set[TrackedFile] = set()
        self._busy: set[TrackedFile] = set()
        self._touched: set[TrackedFile] = set()  # see `touched`
        self._closed = False

    def add(self, file: TrackedFile) -> None:
        """There is something to do."""
        with self._changed:
            self._add(file)

    def wake(self, file: TrackedFile, at_s: float) -> None:
        """`add` it at that time (monotonic), whatever becomes of it until then."""
        with self._changed:
            heapq.heappush(self._wakes, (at_s, next(self._number), file))
            self._changed.notify()

    def _add(self, file: TrackedFile) -> None:
        self._touched.add(file)
        if file in self._held:
            self._again.add(file)
            return
        self._held.add(file)
        self._ready.append(file)
        self._changed.notify()

    def take(self) -> TrackedFile | None:
        """Wait for a file; the caller must end with `done` or `retry`. None: closed."""
        with self._changed:
            while not self._closed:
                now_s = self._clock.monotonic_s()
                while self._later and self._later[0][0] <= now_s:
                    self._ready.append(heapq.heappop(self._later)[2])
                while self._wakes and self._wakes[0][0] <= now_s:
                    self._add(heapq.heappop(self._wakes)[2])
                if self._ready:
                    file = self._ready.popleft()
                    self._again.discard(file)
                    self._busy.add(file)
                    return file
                next_s = min(
                    (times[0][0] for times in (self._later, self._wakes) if times), default=None
                )
                self._changed.wait(None if next_s is None else next_s - now_s)
            return None

    def take_more(
        self, fits: Callable[[TrackedFile], bool], most: int, share: int
    ) -> list[TrackedFile]:
        """Take those that are next, without waiting, as `take` does.

        Args: fits: Which files to take; the first that does not fit ends it. most: No more than so
            many. share: No more than one in so many of the files that are ready: the others are
            left to other workers.
        """
        with self._changed:
            taken = list[TrackedFile]()
            most = min(most, len(self._ready) // share)
            while len(taken) < most and fits(self._ready[0]):
                file = self._ready.popleft()
                self._again.discard(file)
                self._busy.add(file)
                taken.append(file)
            return taken

    def done(self, file: TrackedFile, *, more: bool) -> None:
        """The step is over; `more`: the next may follow at once, after the others had theirs."""
        with self._changed:
            self._busy.discard(file)
            if more or file in self._again:
                self._ready.append(file)
                self._changed.notify()
            else:
                self._held.discard(file)

    def retry(self, file: TrackedFile, after_s: float) -> None:
        """The step failed: once more, later."""
        with self._changed:
            self._busy.discard(file)
            heapq.heappush(
                self._later, (self._clock.monotonic_s() + after_s, next(self._number), file)
            )
            self._changed.notify()

    def is_idle(self, file: TrackedFile) -> bool:
        """Whether no worker has the file or will get it. It stays so until the next `add`."""
        with self._changed:
            return file not in self._held

    def unless_busy(self, file: TrackedFile, action: Callable[[], object]) -> bool:
        """Do this while no worker has the file; whether none had it."""
        with self._changed:
            if file in self._busy:
                return False
            action()
            return True

    def touched(self, *, forget: bool = False) -> set[TrackedFile]:
        """Files that have a step before them, or had one since they were forgotten; `forget`: from
        now on they are.
        """
        with self._changed:
            touched = self._touched | self._held
            if forget:
                self._touched = set()
            return touched

    def close(self) -> None:
        """Let `take` return None, now and ever after."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
