"""Progress messages of `hourmark run`: no silence of more than five seconds.

Each message begins with the number of seconds since the start. During a wait, its description is
repeated if nothing else has been reported for some time, so users see that the command is still
working and what it is waiting for. One thread does this for all waits within the outermost one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final, NamedTuple

from hourmark.clock import Clock

SILENCE_S: Final = (
    4.0  # with the time between two checks, and half a second on a busy machine: five
)
_CHECKS_PER_SILENCE: Final = 10


class _Wait(NamedTuple):
    what: str
    details: Callable[[], str]


class RunProgress:
    """A reporter of progress messages with the elapsed time. Thread-safe.

    During a long wait, the message is repeated at intervals, so users see that the command is still
    working.

    Args:
        report: Function that receives each message as one line. Calls are serialized.
        clock: Clock that measures the elapsed time.
        silence_s: Maximum time in seconds between messages during a wait.
    """

    def __init__(
        self, report: Callable[[str], None], clock: Clock, silence_s: float = SILENCE_S
    ) -> None:
        self._report, self._clock, self._silence_s = report, clock, silence_s
        self._lock = threading.Lock()
        self._began_s = self._reported_s = clock.monotonic_s()
        self._wait: _Wait | None = None

    @property
    def elapsed_s(self) -> float:
        """Return the number of seconds since this object was created."""
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
    def awaiting(
        self, what: str, details: Callable[[], str] = str
    ) -> Iterator[Callable[[str], None]]:
        """Report repeatedly what the body of a `with` statement is waiting for.

        Only the innermost of nested `with` statements is reported.

        Args:
            what: Text that follows "waiting for", such as `all lines to be acknowledged`.
            details: Function that returns current details, which are appended in parentheses; an
                empty string if there are none. Called from another thread.

        Yields:
            A function that replaces the text, and reports the new text immediately if it has
            changed.
        """
        outer, self._wait = self._wait, _Wait(what, details)
        try:
            with self._repeating() if outer is None else nullcontext():
                yield self._replace
        finally:
            self._wait = outer

    def _replace(self, what: str) -> None:
        assert self._wait is not None, "it is called within the `with` block"
        if what != self._wait.what:
            self._wait = self._wait._replace(what=what)
            self.report(f"waiting for {what}")

    @contextmanager
    def _repeating(self) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._repeat, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _repeat(self, ended: threading.Event) -> None:
        while not ended.wait(self._silence_s / _CHECKS_PER_SILENCE):
            wait = self._wait
            if wait and self._clock.monotonic_s() - self._reported_s >= self._silence_s:
                found = wait.details()
                self.report(f"waiting for {wait.what}{f' ({found})' if found else ''}")
