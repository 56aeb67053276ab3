"""Ranges of one file that are on their way at a time: sent one after another, their answers taken
as they come.

The thread that cuts a file sends its ranges, too. To hand each to another thread took as much CPU
as an eighth of compressing it: two threads of Python wait for each other. Over all files there are
as many more on their way as `Lanes` has, beside the one that each sender may have; so memory is
bounded, whatever the number of files.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from typing import Final, Protocol

from hourmark.records.wire import RangeAnswer
from hourmark_producer.files.tracked_file import SpooledRange
from hourmark_producer.send.client import RANGE_TIMEOUT_S

LANES: Final = 4  # memory: a compressed range each


class Sent(Protocol):
    """A range that a service was asked to take."""

    def fileno(self) -> int | None:
        """What can be read from once its answer is there; None: nothing is waited for."""
        ...

    def answer(self) -> RangeAnswer:
        """Wait for it."""
        ...


class Lanes:
    """Safe to use from several threads."""

    def __init__(self, count: int = LANES) -> None:
        self._idle = threading.Semaphore(count)

    def take(self) -> bool:
        """Whether there was one; then it must be given back."""
        return self._idle.acquire(blocking=False)

    def give_back(self) -> None:
        """It is free again."""
        self._idle.release()


class Flight:
    """What one step of a file has under way. Used by one thread."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._aloft: list[tuple[SpooledRange, Sent]] = []

    @property
    def aloft(self) -> int:
        """How many are."""
        return len(self._aloft)

    def start(self, outgoing: SpooledRange, send: Callable[[], Sent]) -> bool:
        """Whether there is a lane, and it is sent; then it must `land`."""
        if not self._lanes.take():
            return False
        try:
            self._aloft.append((outgoing, send()))
        except BaseException:
            self._lanes.give_back()
            raise
        return True

    @property
    def has_landed(self) -> bool:
        """Whether `land` returns at once."""
        return bool(self._aloft) and self._landed(0.0) is not None

    def land(self) -> tuple[SpooledRange, RangeAnswer | Exception]:
        """Wait for one, whichever is first."""
        outgoing, sent = self._aloft.pop(self._landed(RANGE_TIMEOUT_S) or 0)
        try:
            return outgoing, sent.answer()
        except Exception as error:  # noqa: BLE001  # raised by whom it concerns
            return outgoing, error
        finally:
            self._lanes.give_back()

    def _landed(self, wait_s: float) -> int | None:
        """Which answer can be read."""
        numbers, poll = [sent.fileno() for _, sent in self._aloft], select.poll()
        for at, number in enumerate(numbers):
            if number is None:
                return at
            poll.register(number, select.POLLIN)
        ready = poll.poll(wait_s * 1000)
        return numbers.index(ready[0][0]) if ready else None
