"""The size limit for the next ranges of a tailer, which adapts to the services.

Ranges contain what is available, so they are small under light load and nothing waits. With a
backlog they are as large as allowed, because each range has a fixed cost. If a response takes
longer than `SLOW_S`, or the range was too large for every service, the limit drops to half of that
range. Fast responses raise it again, but never to a size that was too large: such a range waits
until a service accepts it, and no second one should. Ranges that were already cut keep their size.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Final

from hourmark_producer.cut.lines import RangeLimits

SLOW_S: Final = 5.0  # a claim, and with it an hour, waits as long as the oldest range
QUICK_S: Final = 1.0


class AdaptiveRangeLimits:
    """The maximum size of byte ranges, adapted to the response times of the delivery services.

    Slow responses and rejected ranges lower the limit; fast responses raise it. Thread-safe.

    Args:
        maximum: The configured limits, which are never exceeded.
        minimum_bytes: Minimum value of the range limit in bytes.
    """

    def __init__(self, maximum: RangeLimits, minimum_bytes: int) -> None:
        self._maximum = maximum
        self._minimum_bytes = min(minimum_bytes, maximum.range_bytes)
        self._limits = maximum
        self._taken_bytes = maximum.range_bytes  # as far as is known
        self._lock = threading.Lock()

    @property
    def limits(self) -> RangeLimits:
        """Return the size limits that apply to the next range. They change between calls."""
        return self._limits

    def record_acknowledged(self, size_bytes: int, seconds: float) -> None:
        """Adjust the limit after a service acknowledged a range.

        If the response took longer than `SLOW_S` (5 s), the limit is at most half of the range's
        size. If it took less than `QUICK_S` (1 s) and the range was larger than half of the limit,
        the limit is doubled.

        Args:
            size_bytes: Size of the range in bytes.
            seconds: Time from sending the range to its acknowledgement.
        """
        if size_bytes > self._taken_bytes:
            self._taken_bytes = self._maximum.range_bytes  # what was too large is no more
        if seconds > SLOW_S:
            self._set(min(self._limits.range_bytes, size_bytes // 2))
        elif seconds < QUICK_S and size_bytes > self._limits.range_bytes // 2:
            self._set(2 * self._limits.range_bytes)

    def record_failure(self, size_bytes: int, seconds: float) -> None:
        """Lower the limit after a request failed slowly.

        If the failure took longer than `SLOW_S` (5 s), the limit is at most half of the range's
        size. A faster failure has no effect, because it says nothing about the size.

        Args:
            size_bytes: Size of the range in bytes.
            seconds: Time from sending the range to the failure.
        """
        if seconds > SLOW_S:
            self._set(min(self._limits.range_bytes, size_bytes // 2))

    def record_too_large(self, size_bytes: int) -> None:
        """Lower the limit after all services rejected a range as too large (status 413).

        The limit is at most half of the rejected size until a service accepts a larger range.

        Args:
            size_bytes: Size of the rejected range in bytes.
        """
        self._taken_bytes = min(self._taken_bytes, size_bytes // 2)
        self._set(self._limits.range_bytes)

    def _set(self, wanted: int) -> None:
        with self._lock:
            size = max(self._minimum_bytes, min(wanted, self._taken_bytes))
            self._limits = dataclasses.replace(self._maximum, range_bytes=size)
