"""Ranges of one file that are in flight at the same time.

The thread that cuts a file also sends its ranges and collects the responses as they arrive. Handing
each range to another thread cost as much CPU time as an eighth of compressing it, because of
contention for the interpreter lock. Besides the one range that each sender may have in flight, all
files together have at most `IN_FLIGHT_SLOTS` more, which bounds memory whatever the number of
files.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from typing import Final, Protocol

from hourmark.records.wire import RangeResponse
from hourmark_producer.files.tracked_file import SpooledRange
from hourmark_producer.send.client import RANGE_TIMEOUT_S

IN_FLIGHT_SLOTS: Final = 4  # memory: a compressed range each


class PendingRange(Protocol):
    """A byte range that was sent to a delivery service and is not acknowledged yet."""

    def fileno(self) -> int | None:
        """Return the file descriptor that becomes readable when the response arrives.

        Returns:
            The descriptor; None if there is none, for example because sending failed. In this case,
            call `result` immediately.
        """
        ...

    def result(self) -> RangeResponse:
        """Wait for the acknowledgement of the range. Call it exactly once.

        Returns:
            The response of the service.

        Raises:
            NoServiceAvailable: No service acknowledged the range. Send it again later.
            RequestRefused: Every service refused the range.
        """
        ...


class InFlightSlots:
    """A counting semaphore that limits the number of additional byte ranges in flight.

    A file can always have one range in flight. Each additional range needs a slot. Thread-safe.

    Args:
        count: Number of slots. Each slot in use holds one compressed range in memory.
    """

    def __init__(self, count: int = IN_FLIGHT_SLOTS) -> None:
        self._idle = threading.Semaphore(count)

    def try_acquire(self) -> bool:
        """Acquire a slot without waiting.

        Returns:
            True if a slot was acquired; the caller must return it with `release`. False if none is
            free.
        """
        return self._idle.acquire(blocking=False)

    def release(self) -> None:
        """Return a slot that was acquired with `try_acquire`."""
        self._idle.release()


class InFlightRanges:
    """The additional byte ranges of one file that were sent and await a response.

    A file can always have one range in flight, which is not managed by this object. Each additional
    range occupies a slot until `wait_for_next` returns it. All files share a limited number of
    slots. Not thread-safe.

    Args:
        slots: Slots that all files share.
    """

    def __init__(self, slots: InFlightSlots) -> None:
        self._slots = slots
        self._ranges: list[tuple[SpooledRange, PendingRange]] = []

    @property
    def count(self) -> int:
        """Return the number of sent ranges that `wait_for_next` has not returned yet."""
        return len(self._ranges)

    def try_send(self, outgoing: SpooledRange, send: Callable[[], PendingRange]) -> bool:
        """Send a byte range if a slot is free, without waiting for the response.

        Args:
            outgoing: The range, as it is stored in the checkpoint.
            send: Function that sends the range. Its exceptions are propagated.

        Returns:
            True if the range was sent; `wait_for_next` will return it. False if no slot is free.
        """
        if not self._slots.try_acquire():
            return False
        try:
            self._ranges.append((outgoing, send()))
        except BaseException:
            self._slots.release()
            raise
        return True

    @property
    def has_result(self) -> bool:
        """Return whether `wait_for_next` would return immediately. False if no range is in flight."""
        return bool(self._ranges) and self._find_ready(0.0) is not None

    def wait_for_next(self) -> tuple[SpooledRange, RangeResponse | Exception]:
        """Wait for the response to any range in flight, and release the slot of that range.

        Call this method only if `count` is greater than 0.

        Returns:
            The range, and either the response of the service or the exception that was raised.
        """
        outgoing, sent = self._ranges.pop(self._find_ready(RANGE_TIMEOUT_S) or 0)
        try:
            return outgoing, sent.result()
        except Exception as error:  # noqa: BLE001  # the caller raises it
            return outgoing, error
        finally:
            self._slots.release()

    def _find_ready(self, wait_s: float) -> int | None:
        numbers, poll = [sent.fileno() for _, sent in self._ranges], select.poll()
        for at, number in enumerate(numbers):
            if number is None:
                return at
            poll.register(number, select.POLLIN)
        ready = poll.poll(wait_s * 1000)
        return numbers.index(ready[0][0]) if ready else None
