"""Rate limits of a token: one token bucket for bytes, another one for events.

A request is admitted if neither bucket is empty, and is then charged in full, however large it is.
So admission does not depend on the size of the request: a large request is never refused
permanently, and a retry is treated like the first attempt. Later requests wait until the debt is
repaid.
"""

from __future__ import annotations

import math
from typing import Final

from hourmark.clock import Clock
from hourmark_delivery_service.access.token import Token

_BURST_S: Final = 2.0  # of its rate, may come at once


class TokenBucket:
    """A token bucket (rate limiter) that refills at a constant rate and may go into debt.

    The bucket starts full. Its capacity is the amount that is added in two seconds. Not
    thread-safe.

    Args:
        rate: Amount that is added per second.
        clock: Source of monotonic time.
    """

    def __init__(self, rate: int, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._level = rate * _BURST_S
        self._at_s = clock.monotonic_s()

    def wait_s(self) -> int:
        """Return the time until the level is above zero, in whole seconds.

        Returns 0 if the level is above zero now. The call does not wait.
        """
        self._fill()
        return 0 if self._level > 0 else math.floor(-self._level / self._rate) + 1

    def consume(self, amount: int) -> None:
        """Remove an amount from the bucket immediately, without blocking.

        The level may become negative. `wait_s` then returns the time until the debt is repaid.

        Args:
            amount: Amount to remove, in the unit of the bucket's rate.
        """
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now_s = self._clock.monotonic_s()
        self._level = min(self._rate * _BURST_S, self._level + self._rate * (now_s - self._at_s))
        self._at_s = now_s


class TokenRateLimiter:
    """A rate limiter for the requests of one access token, by bytes and events per second.

    A request is admitted if neither limit is exhausted, and is then charged in full. Later requests
    are rejected until the debt is repaid. A limit that the token does not declare is not enforced.

    Args:
        token: Token that declares the limits.
        clock: Source of monotonic time.
    """

    def __init__(self, token: Token, clock: Clock) -> None:
        self.token = token
        self._bytes = TokenBucket(token.bytes_per_second, clock) if token.bytes_per_second else None
        self._events = (
            TokenBucket(token.events_per_second, clock) if token.events_per_second else None
        )

    def retry_after_s(self) -> int:
        """Return the time until a request can be admitted, in whole seconds.

        Returns 0 if a request can be admitted now. The call neither waits nor charges the limits.
        """
        return max(
            (bucket.wait_s() for bucket in (self._bytes, self._events) if bucket is not None),
            default=0,
        )

    def charge(self, *, size: int = 0, events: int = 0) -> None:
        """Charge an admitted request to both limits. The call never blocks.

        Args:
            size: Number of decompressed bytes of the body.
            events: Number of events and dead letters (records of invalid lines) in the request.
        """
        for bucket, amount in ((self._bytes, size), (self._events, events)):
            if bucket is not None:
                bucket.consume(amount)
