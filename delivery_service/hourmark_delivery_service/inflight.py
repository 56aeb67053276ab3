"""Requests under way: how much memory they take, and since when the oldest of them is."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from hourmark.clock import Clock
from hourmark_delivery_service.errors import NotNow
from hourmark_delivery_service.metrics import Metrics


@dataclasses.dataclass(slots=True, eq=False)
class Request:
    """One request. `start_ms`: the service's clock when it came; its records carry it."""

    start_ms: int
    bytes: int = 0


class Inflight:
    """Admits requests while memory allows, and knows the oldest.

    `oldest_ms` is what the service's own report says: whatever comes later starts later, even if the clock is set back.
    """

    def __init__(self, clock: Clock, bytes_max: int, metrics: Metrics) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._metrics = metrics
        self._requests: dict[int, Request] = {}
        self.bytes = 0  # of requests under way
        self._claimed_ms = 0

    @contextlib.contextmanager
    def request(self) -> Iterator[Request]:
        """Count a request from here to the end of the block."""
        request = Request(max(self._clock.now_ms(), self._claimed_ms))
        self._requests[id(request)] = request
        try:
            yield request
        finally:
            del self._requests[id(request)]
            self.bytes -= request.bytes
            self._metrics.inflight_bytes.set(self.bytes)

    def reserve(self, request: Request, size: int) -> None:
        """Take memory for `request`. NotNow if there is too little, unless it would be the only one to have any."""
        if self.bytes and self.bytes + size > self._bytes_max:
            raise NotNow("overloaded", f"requests under way hold {self.bytes} bytes of {self._bytes_max} allowed")
        request.bytes += size
        self.bytes += size
        self._metrics.inflight_bytes.set(self.bytes)

    def oldest_ms(self) -> int:
        """When the oldest request under way began, or now: all that began earlier is answered."""
        claim = min((request.start_ms for request in self._requests.values()), default=self._clock.now_ms())
        self._claimed_ms = max(self._claimed_ms, claim)
        return self._claimed_ms

    @property
    def requests(self) -> int:
        """How many requests are under way."""
        return len(self._requests)
