"""How large the next ranges of a tailer may be: as `range_bytes` says, or less where services are
slow or refuse that much.

A range holds what there is, so under light load ranges are small by themselves, and nothing waits
for more. With a backlog they are as large as they may be, because each has its price. Where an
answer takes long, half of what it was for is enough; so it is where that was too large for every
service. Answers that come soon let it grow again, but never to what was too large: such a range
waits until its service takes it, and no second one is to. Ranges that were cut stay as they are.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Final

from hourmark_producer.cut.lines import Limits

SLOW_S: Final = 5.0  # a claim, and with it an hour, waits as long as the oldest range
QUICK_S: Final = 1.0


class RangeSizes:
    """Safe to use from several threads."""

    def __init__(self, most: Limits, least_bytes: int) -> None:
        self._most = most
        self._least_bytes = min(least_bytes, most.range_bytes)
        self._limits = most
        self._taken_bytes = most.range_bytes  # as far as is known
        self._lock = threading.Lock()

    @property
    def limits(self) -> Limits:
        """Of the next range."""
        return self._limits

    def acknowledged(self, count: int, seconds: float) -> None:
        """A range of `count` bytes was, after so long."""
        if count > self._taken_bytes:
            self._taken_bytes = self._most.range_bytes  # what was too large is no more
        if seconds > SLOW_S:
            self._set(min(self._limits.range_bytes, count // 2))
        elif seconds < QUICK_S and count > self._limits.range_bytes // 2:
            self._set(2 * self._limits.range_bytes)

    def failed(self, count: int, seconds: float) -> None:
        """A range of `count` bytes was not taken, after so long; at once says nothing
        about sizes.
        """
        if seconds > SLOW_S:
            self._set(min(self._limits.range_bytes, count // 2))

    def too_large(self, count: int) -> None:
        """No service takes a range of `count` bytes: none as large is made until one is taken."""
        self._taken_bytes = min(self._taken_bytes, count // 2)
        self._set(self._limits.range_bytes)

    def _set(self, wanted: int) -> None:
        with self._lock:
            size = max(self._least_bytes, min(wanted, self._taken_bytes))
            self._limits = dataclasses.replace(self._most, range_bytes=size)
