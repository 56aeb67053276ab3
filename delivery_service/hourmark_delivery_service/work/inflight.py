"""Requests under way: how much memory they take, and since when the oldest of them is."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

from hourmark.clock import Clock
from hourmark_delivery_service.errors import ServiceUnavailable
from hourmark_delivery_service.metrics import ServiceMetrics

# of a body: itself, the records that the producer holds, and what parsing keeps of them for the
# audit
HELD_PER_BYTE: Final = 3
_STALLED_S: Final = 1.0
_PROGRESS_BYTES: Final = (
    64 * 1024
)  # what a body must bring within that time to be kept while memory is short


@dataclasses.dataclass(slots=True, eq=False)
class InflightRequest:
    """One request. `start_ms`: the service's clock when it came. `bytes`: the memory that it
    holds.
    """

    start_ms: int
    bytes: int = 0


@dataclasses.dataclass(slots=True)
class _Reading:
    """A body that comes. `stop` ends the reading. `came`: bytes since its last progress."""

    stop: Callable[[], None]
    progress_s: float
    came: int = 0


class InflightRequests:
    """Admits requests while memory allows, and knows the oldest.

    Memory is taken for what has come, never for what was announced. Where there is none left, a
    body that does not come gives way to one that does.

    `oldest_ms` is what the service's own report says: whatever comes later starts later, even if
    the clock is set back.
    """

    def __init__(self, clock: Clock, bytes_max: int, metrics: ServiceMetrics) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._metrics = metrics
        self._requests: dict[int, InflightRequest] = {}
        self._readings: dict[int, _Reading] = {}
        self.bytes = 0  # of requests under way
        self._claimed_ms = 0

    def set_start_min(self, start_ms: int) -> None:
        """Something was claimed in this one's name already: whatever comes starts later."""
        self._claimed_ms = max(self._claimed_ms, start_ms)

    @contextlib.contextmanager
    def track(self) -> Iterator[InflightRequest]:
        """Count a request from here to the end of the block."""
        with self._counted(InflightRequest(max(self._clock.now_ms(), self._claimed_ms))) as request:
            yield request

    @contextlib.contextmanager
    def transfer(self, request: InflightRequest) -> Iterator[InflightRequest]:
        """Count what goes on for `request` even if its client leaves, with the memory
        that it held.
        """
        with self._counted(dataclasses.replace(request)) as work:
            request.bytes = 0
            yield work

    @contextlib.contextmanager
    def reading(self, request: InflightRequest, stop: Callable[[], None]) -> Iterator[None]:
        """Its body comes from here to the end of the block. `stop` is called, and its memory taken,
        if another one needs it.
        """
        self._readings[id(request)] = _Reading(stop, self._clock.monotonic_s())
        try:
            yield
        finally:
            self._readings.pop(id(request), None)

    def reserve(self, request: InflightRequest, size: int) -> None:
        """Take memory for `request`.

        NotNow if there is too little, unless it would be the only one to have any.
        """
        while self.bytes > request.bytes and self.bytes + size > self._bytes_max:
            if not self._stop_a_stalled_body():
                raise ServiceUnavailable(
                    "overloaded",
                    f"requests under way hold {self.bytes} bytes of {self._bytes_max} allowed",
                )
        self._take(request, size)

    def reserve_body(self, request: InflightRequest, size: int) -> None:
        """Take memory for so many bytes of its body, and for all that becomes of them.

        NotNow as `reserve`.
        """
        reading = self._readings.get(id(request))
        if (
            reading is not None
        ):  # before it asks for memory: what came is progress, whoever else must give way
            reading.came += size
            if reading.came >= _PROGRESS_BYTES:
                reading.progress_s, reading.came = self._clock.monotonic_s(), 0
        self.reserve(request, HELD_PER_BYTE * size)

    def oldest_ms(self) -> int:
        """When the oldest request under way began, or now: all that began earlier is answered."""
        claim = min(
            (request.start_ms for request in self._requests.values()), default=self._clock.now_ms()
        )
        self._claimed_ms = max(self._claimed_ms, claim)
        return self._claimed_ms

    @property
    def requests(self) -> int:
        """How many requests are under way."""
        return len(self._requests)

    @contextlib.contextmanager
    def _counted(self, request: InflightRequest) -> Iterator[InflightRequest]:
        self._requests[id(request)] = request
        try:
            yield request
        finally:
            del self._requests[id(request)]
            self._take(request, -request.bytes)

    def _take(self, request: InflightRequest, size: int) -> None:
        request.bytes += size
        self.bytes += size
        self._metrics.inflight_bytes.set(self.bytes)

    def _stop_a_stalled_body(self) -> bool:
        """The one that has brought nothing for the longest; False if all that come, come well."""
        number, slowest = min(
            ((n, r) for n, r in self._readings.items() if self._requests[n].bytes),
            key=lambda pair: pair[1].progress_s,
            default=(0, None),
        )
        if slowest is None or self._clock.monotonic_s() - slowest.progress_s < _STALLED_S:
            return False
        del self._readings[number]
        self._take(self._requests[number], -self._requests[number].bytes)
        slowest.stop()
        return True
