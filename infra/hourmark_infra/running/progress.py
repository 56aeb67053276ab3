"""Progress messages of `hourmark run`: no silence of more than five seconds.

Each message begins with the number of seconds since the start. While an operation is awaited, its
description is repeated whenever nothing else was reported for some time, so that a user sees that
the command still works and what it waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from hourmark.clock import Clock

SILENCE_S: Final = 5.0
_CHECKS_PER_SILENCE: Final = 10


class RunProgress:
    """A reporter of progress messages with the elapsed time. Thread-safe.

    While an operation is awaited, its description is repeated at intervals, so that users see that
    the command is still working.

    Args:
        report: Function that receives each message as one line. It is never called by two threads
            at the same time.
        clock: Clock that measures the elapsed time.
        silence_s: Longest time in seconds without a message while something is awaited.
    """

    def __init__(
        self, report: Callable[[str], None], clock: Clock, silence_s: float = SILENCE_S
    ) -> None:
        self._report, self._clock, self._silence_s = report, clock, silence_s
        self._lock = threading.Lock()
        self._began_s = self._reported_s = clock.monotonic_s()
        self._awaited = ""

    @property
    def elapsed_s(self) -> float:
        """Seconds since this object was created."""
        return self._clock.monotonic_s() - self._began_s

    def report(self, message: str) -> None:
        """Pass a message to the `report` function, prefixed with the elapsed time in seconds.

        Args:
            message: One line of text.
        """
        with self._lock:
            self._reported_s = self._clock.monotonic_s()
            self._report(f"[{self.elapsed_s:5.0f} s] {message}")

    @contextmanager
    def awaiting(self, what: str) -> Iterator[Callable[[str], None]]:
        """Return a context manager that reports at intervals what the `with` block is waiting for.

        Args:
            what: Description of the awaited state, such as `all lines to be acknowledged`.

        Yields:
            A function that replaces the description. It reports the new one immediately if it
            differs from the previous one.
        """
        outer, self._awaited = self._awaited, what
        ended = threading.Event()
        thread = threading.Thread(target=self._repeat, args=(ended,), daemon=True)
        thread.start()
        try:
            yield self._replace
        finally:
            ended.set()
            thread.join()
            self._awaited = outer

    def _replace(self, what: str) -> None:
        if what != self._awaited:
            self._awaited = what
            self.report(f"waiting for {what}")

    def _repeat(self, ended: threading.Event) -> None:
        while not ended.wait(self._silence_s / _CHECKS_PER_SILENCE):
            if self._clock.monotonic_s() - self._reported_s >= self._silence_s:
                self.report(f"waiting for {self._awaited}")
