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
    """A queue of files that have unread or unsent bytes, shared by a fixed number of workers.

    A worker takes a file, processes it for one step, and returns it. At any time, a file is idle,
    ready, busy (assigned to one worker), or waiting until a given time. If a busy file is added, it
    becomes ready again after its current step. Thread-safe.

    Args:
        clock: Clock of this host. It determines when waiting files become ready.
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
        """Add an idle file to the queue, so that a worker takes it.

        A busy file becomes ready again after its current step. A file that is already ready or
        waiting does not change.

        Args:
            file: A file with unread or unsent bytes.
        """
        with self._changed:
            self._add(file)

    def add_later(self, file: TrackedFile, at_s: float) -> None:
        """Schedule a call of `add` for a file at a given time, and return immediately.

        Args:
            file: The file, in any state.
            at_s: Time in seconds of this host's monotonic clock.
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
        """Wait until a file is ready, and assign it to the calling worker.

        The caller must end the step of the file with `finish_step` or `retry`.

        Returns:
            The file, or None once the schedule is closed.
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
        self, fits: Callable[[TrackedFile], bool], count_max: int, workers: int
    ) -> list[TrackedFile]:
        """Assign further ready files to the calling worker, without waiting.

        The caller must end the step of each file with `finish_step` or `retry`.

        Args:
            fits: Function that returns whether to take a file. The selection ends at the first file
                for which it returns False.
            count_max: Maximum number of files to take.
            workers: Number of workers that share the queue. A worker takes at most its share, which
                is the number of ready files divided by this number.

        Returns:
            The files, in queue order; empty if there is none to take.
        """
        with self._changed:
            taken = list[TrackedFile]()
            count_max = min(count_max, len(self._ready) // workers)
            while len(taken) < count_max and fits(self._ready[0]):
                file = self._ready.popleft()
                self._again.discard(file)
                self._busy.add(file)
                taken.append(file)
            return taken

    def finish_step(self, file: TrackedFile, *, more: bool) -> None:
        """End the step of a busy file. The file becomes idle unless there is more work.

        Args:
            file: The file.
            more: Whether the file needs another step. If so, it is appended to the queue.
        """
        with self._changed:
            self._busy.discard(file)
            if more or file in self._again:
                self._ready.append(file)
                self._changed.notify()
            else:
                self._held.discard(file)

    def retry(self, file: TrackedFile, after_s: float) -> None:
        """End a failed step of a busy file. The file becomes ready again after a delay.

        Adding the file in the meantime does not shorten the delay.

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
        """Return whether a file is idle: neither ready, busy nor waiting for a retry.

        An idle file stays idle until it is added again.

        Args:
            file: The file.
        """
        with self._changed:
            return file not in self._held

    def run_unless_busy(self, file: TrackedFile, action: Callable[[], object]) -> bool:
        """Call a function unless a worker has the file, for example to close the file safely.

        Args:
            file: The file.
            action: Function to call. No worker can take a file during the call.

        Returns:
            True if the function was called, False if a worker has the file.
        """
        with self._changed:
            if file in self._busy:
                return False
            action()
            return True

    def scheduled_files(self, *, reset: bool = False) -> set[TrackedFile]:
        """Return all files that are ready, busy or waiting, and all files that were recently added.

        A file counts as recently added until the next call with `reset`. In this way, the caller
        does not miss files that were added and completed between two calls.

        Args:
            reset: Whether to forget which files were recently added.

        Returns:
            A new set; empty if there are no such files.
        """
        with self._changed:
            touched = self._touched | self._held
            if reset:
                self._touched = set()
            return touched

    def close(self) -> None:
        """Close the queue permanently. Pending and later calls of `take` return None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
