"""A queue of files with work to do: each file at most once, and at most one worker per file."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable

from hourmark.clock import Clock
from hourmark_producer.files.tracked_file import TrackedFile


class Schedule:
    """The queue of files that have work to do, which assigns each file to at most one worker.

    A file is idle, ready, busy (a worker has it) or waiting for a time. If a busy file is added, it
    becomes ready again after its current step. Safe to use from several threads.
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
        self._touched: set[TrackedFile] = set()  # see `scheduled_files`
        self._closed = False

    def add(self, file: TrackedFile) -> None:
        """Make an idle file ready, so that a worker takes it.

        A busy file becomes ready again after its current step. A file that is ready or waiting does
        not change.
        """
        with self._changed:
            self._add(file)

    def add_later(self, file: TrackedFile, at_s: float) -> None:
        """Add a file at a later time.

        Args:
            file: The file. Its state does not change until then.
            at_s: When to add it, in monotonic seconds.
        """
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
        """Wait until a file is ready, and make it busy.

        The caller must end the step with `done` or `retry`.

        Returns:
            The file, or None if the schedule was closed.
        """
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
        """Take further ready files from the front of the queue, without waiting.

        The caller must end the step of each file with `done` or `retry`.

        Args:
            fits: Function that returns whether to take a file. Taking stops at the first file that
                does not fit.
            most: Maximum number of files.
            share: Number of workers that share the queue. At most the ready files divided by this
                number are taken.

        Returns:
            The files that were taken, possibly none.
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
        """End the step of a busy file.

        Args:
            file: The file.
            more: Whether the file needs another step. It is then queued after all files that are
                ready now.
        """
        with self._changed:
            self._busy.discard(file)
            if more or file in self._again:
                self._ready.append(file)
                self._changed.notify()
            else:
                self._held.discard(file)

    def retry(self, file: TrackedFile, after_s: float) -> None:
        """End a failed step of a busy file, and make the file ready again after a delay.

        Args:
            file: The file.
            after_s: Delay in seconds.
        """
        with self._changed:
            self._busy.discard(file)
            heapq.heappush(
                self._later, (self._clock.monotonic_s() + after_s, next(self._number), file)
            )
            self._changed.notify()

    def is_idle(self, file: TrackedFile) -> bool:
        """Return whether a file is idle. An idle file stays idle until it is added again."""
        with self._changed:
            return file not in self._held

    def run_unless_busy(self, file: TrackedFile, action: Callable[[], object]) -> bool:
        """Call a function while no worker has the file.

        Args:
            file: The file.
            action: The function. Workers cannot take files during the call.

        Returns:
            True if the function was called, False if a worker has the file.
        """
        with self._changed:
            if file in self._busy:
                return False
            action()
            return True

    def scheduled_files(self, *, forget: bool = False) -> set[TrackedFile]:
        """Return the files that are not idle, and the files that were added since the last reset.

        Args:
            forget: Whether to reset the record of added files after this call.
        """
        with self._changed:
            touched = self._touched | self._held
            if forget:
                self._touched = set()
            return touched

    def close(self) -> None:
        """Close the queue: every current and later call of `take` returns None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
