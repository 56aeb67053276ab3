"""What a token may still send through this instance: a bucket for bytes, another for events.

A request is let in while nothing is owed, and then charged all it brought, however large: so
whether it is let in does not depend on its size, a large one is not refused for ever, and a retry
is treated as the first try was. What is owed is waited for.
"""

from __future__ import annotations

import math
from typing import Final

from hourmark.clock import Clock
from hourmark_delivery_service.access.token import Token

_BURST_S: Final = 2.0  # of its rate, may come at once


class TokenBucket:
    """Fills at `rate` a second up to a burst."""

    def __init__(self, rate: int, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._level = rate * _BURST_S
        self._at_s = clock.monotonic_s()

    def wait_s(self) -> int:
        """Whole seconds until it holds something; 0 if it does."""
        self._fill()
        return 0 if self._level > 0 else math.floor(-self._level / self._rate) + 1

    def consume(self, amount: int) -> None:
        """Take it, also where it is not there."""
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now_s = self._clock.monotonic_s()
        self._level = min(self._rate * _BURST_S, self._level + self._rate * (now_s - self._at_s))
        self._at_s = now_s


class TokenRateLimiter:
    """Both buckets of one token; those without a rate hold for ever."""

    def __init__(self, token: Token, clock: Clock) -> None:
        self.token = token
        self._bytes = TokenBucket(token.bytes_per_second, clock) if token.bytes_per_second else None
        self._events = (
            TokenBucket(token.events_per_second, clock) if token.events_per_second else None
        )

    def retry_after_s(self) -> int:
        """Whole seconds until something may be sent; 0: now."""
        return max(
            (bucket.wait_s() for bucket in (self._bytes, self._events) if bucket is not None),
            default=0,
        )

    def charge(self, *, size: int = 0, events: int = 0) -> None:
        """Of a request that was let in."""
        for bucket, amount in ((self._bytes, size), (self._events, events)):
            if bucket is not None:
                bucket.consume(amount)
