"""Requests in flight: their memory, and the start time of the oldest one."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Final

from hourmark.clock import Clock
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX
from hourmark_delivery_service.errors import ServiceUnavailable
from hourmark_delivery_service.metrics import ServiceMetrics

_LOG = logging.getLogger(__name__)

# of a body: itself, the records that the producer holds, and what parsing keeps of them for the
# audit
HELD_PER_BYTE: Final = 3
_STALLED_S: Final = 1.0
_PROGRESS_BYTES: Final = (
    64 * 1024
)  # what a body must bring within that time to be kept while memory is short


@dataclasses.dataclass(slots=True, eq=False)
class InflightRequest:
    """A request that has been received but is not complete yet.

    A request is complete when its response was sent and its delivery to Kafka has ended.

    Attributes:
        start_ms: Arrival time on the service's clock, in Unix milliseconds.
        bytes: Memory reserved for the request, in bytes.
    """

    start_ms: int
    bytes: int = 0


@dataclasses.dataclass(slots=True)
class _Reading:
    stop: Callable[[], None]
    progress_s: float
    came: int = 0


class InflightRequests:
    """The requests in flight of a service process, with a limit on their total memory.

    Memory is reserved for data that has been received, not for the announced content length. If
    memory runs out, the request whose body has stalled longest is aborted to make room for others.
    Not thread-safe: use it in one event loop.

    Args:
        clock: Source of the current time.
        bytes_max: Maximum memory of all requests in bytes.
        metrics: Metrics that show the reserved memory.

    Attributes:
        bytes: Memory reserved by all requests in flight, in bytes.
    """

    def __init__(self, clock: Clock, bytes_max: int, metrics: ServiceMetrics) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._metrics = metrics
        self._requests: dict[int, InflightRequest] = {}
        self._readings: dict[int, _Reading] = {}
        self.bytes = 0  # of requests under way
        self._claimed_ms = 0
        self._last_ms = 0  # the latest clock reading

    def set_start_min(self, start_ms: int) -> None:
        """Set a lower bound for the start times of future requests.

        A worker process calls this method at startup, because the service may already have reported
        that all requests before a certain time have been answered.

        Args:
            start_ms: Lower bound in Unix milliseconds. A value below the current bound has no
                effect.
        """
        self._claimed_ms = max(self._claimed_ms, start_ms)

    @contextlib.contextmanager
    def track(self) -> Iterator[InflightRequest]:
        """Return a context manager that counts a new request as in flight during its block.

        The block receives the new request. Its start time is the current time. It is never earlier
        than a previous result of `oldest_ms`, unless the clock was set back by more than
        `CLOCKS_APART_MS_MAX`. At the end of the block, the memory of the request is released.
        """
        with self._counted(InflightRequest(self._now_ms())) as request:
            yield request

    @contextlib.contextmanager
    def transfer(self, request: InflightRequest) -> Iterator[InflightRequest]:
        """Return a context manager that counts the work of a request as in flight.

        Use it for work that may continue after the client has disconnected. The block receives a
        new in-flight entry with the start time and the memory of the request. At the end of the
        block, this memory is released.

        Args:
            request: Request whose memory is transferred to the new entry. Its own memory becomes 0.
        """
        with self._counted(dataclasses.replace(request)) as work:
            request.bytes = 0
            yield work

    @contextlib.contextmanager
    def reading(self, request: InflightRequest, stop: Callable[[], None]) -> Iterator[None]:
        """Return a context manager that marks a request as receiving its body during the block.

        Args:
            request: Request whose body is received.
            stop: Function that aborts the reception. It is called if the body has stalled for a
                second and a request needs its memory. The memory is released before the call.
        """
        self._readings[id(request)] = _Reading(stop, self._clock.monotonic_s())
        try:
            yield
        finally:
            self._readings.pop(id(request), None)

    def reserve(self, request: InflightRequest, size: int) -> None:
        """Reserve memory for a request.

        If the memory is not sufficient, requests whose body has stalled are aborted to release
        their memory. If no other request holds memory, the limit is not enforced.

        Args:
            request: Request that needs the memory.
            size: Number of bytes. A negative number releases memory.

        Raises:
            ServiceUnavailable: If the limit would be exceeded and no body has stalled.
        """
        while self.bytes > request.bytes and self.bytes + size > self._bytes_max:
            if not self._stop_a_stalled_body():
                raise ServiceUnavailable(
                    "overloaded",
                    f"requests in progress use {self.bytes} of {self._bytes_max} bytes",
                )
        self._take(request, size)

    def reserve_body(self, request: InflightRequest, size: int) -> None:
        """Reserve memory for received bytes of a request body and for all data derived from them.

        The amount is `HELD_PER_BYTE` times the size.

        Args:
            request: Request that received the bytes.
            size: Number of body bytes. A negative number releases memory.

        Raises:
            ServiceUnavailable: If there is not enough memory.
        """
        reading = self._readings.get(id(request))
        if (
            reading is not None
        ):  # before reserving memory: received bytes count as progress even if this fails
            reading.came += size
            if reading.came >= _PROGRESS_BYTES:
                reading.progress_s, reading.came = self._clock.monotonic_s(), 0
        self.reserve(request, HELD_PER_BYTE * size)

    def oldest_ms(self) -> int:
        """Return the time up to which all requests have been answered, in Unix milliseconds.

        This is the start time of the oldest request in flight, or the current time if there is
        none. It decreases only if the clock was set back by more than `CLOCKS_APART_MS_MAX`.
        """
        oldest_ms = self._oldest_ms(self._now_ms())
        self._claimed_ms = max(self._claimed_ms, oldest_ms)
        return self._claimed_ms

    @property
    def requests(self) -> int:
        """Return the number of requests in flight.

        Work that was passed to `transfer` counts separately until it has ended, even if the client
        has disconnected.
        """
        return len(self._requests)

    def _now_ms(self) -> int:
        # A clock that was hours ahead and is corrected must not hold new requests in the future: they
        # would be refused, or be stamped with a wrong time, until the clock has caught up.
        now_ms = self._clock.now_ms()
        step_ms = max(self._last_ms, self._claimed_ms) - now_ms
        self._last_ms = now_ms
        if step_ms > CLOCKS_APART_MS_MAX:
            _LOG.warning(
                "this machine's clock was set back by at least %d s; requests are stamped with "
                "its new time",
                step_ms // 1000,
            )
            for request in self._requests.values():
                request.start_ms = min(request.start_ms - step_ms, now_ms)
            self._claimed_ms = self._oldest_ms(now_ms)
        return max(now_ms, self._claimed_ms)

    def _oldest_ms(self, default_ms: int) -> int:
        return min((request.start_ms for request in self._requests.values()), default=default_ms)

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
