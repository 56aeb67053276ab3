"""Time as a dependency: all code that needs the time takes a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Interface to the wall clock, a monotonic clock and sleeping.

    Code takes a `Clock` as an argument, so that tests can replace it with a simulated one.
    """

    def now_ms(self) -> int:
        """Return the current wall-clock time in Unix milliseconds.

        The value can go backwards when the system time is adjusted. Use `monotonic_s` to measure
        durations.
        """
        ...

    def monotonic_s(self) -> float:
        """Return the time of a clock that never goes backwards.

        Returns:
            Seconds since an arbitrary start. Only the difference between two values is meaningful.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for a duration.

        A simulated clock advances its own time instead.

        Args:
            seconds: The duration in seconds.
        """
        ...


class SystemClock:
    """An implementation of `Clock` that uses the clocks of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
