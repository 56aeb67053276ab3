"""Time as a dependency: nothing in Hourmark asks the operating system for it except through
`Clock`.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is written down, monotonic time for how long something took."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; a fake clock moves on instead."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
