"""How long one pass (`hourmark tail --once`) waits while nothing is acknowledged."""

from __future__ import annotations

from hourmark.clock import Clock
from hourmark.errors import Unavailable


class Standstill:
    """Of a run. `limit_s`: None, it waits for ever."""

    def __init__(self, clock: Clock, limit_s: float | None) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._ranges, self._moved_s = -1, clock.monotonic_s()

    def check(self, ranges: int, pending_bytes: int) -> None:
        """Unavailable where it lasts too long. `ranges`: acknowledged so far."""
        now_s = self._clock.monotonic_s()
        if ranges != self._ranges:
            self._ranges, self._moved_s = ranges, now_s
        elif self._limit_s is not None and now_s - self._moved_s >= self._limit_s:
            raise Unavailable(
                f"for {self._limit_s:g} s nothing was acknowledged; {pending_bytes} bytes are pending or unreported. They are "
                "kept: look at the warnings above, at tailer.service_urls and at `hourmark tail status`, then run it again"
            )
