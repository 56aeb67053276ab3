"""Time as a dependency: all code that needs the time takes a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock time, monotonic time and delays; tests use a fake one."""

    def now_ms(self) -> int:
        """Return the current time in Unix milliseconds."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds of a clock that never goes back; only differences are meaningful."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds. A fake clock advances instead."""
        ...


class SystemClock:
    """A clock that reads the operating system's time."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
