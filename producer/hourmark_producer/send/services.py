"""Selection of the delivery service for the next request, and the state of each service.

Of the healthy services the one with the fewest requests in flight is selected, and among those the
least recently selected. A failed service is retried by a single request after a backoff that grows
with each failure; before that it is selected only if no other service is left, because the request
itself may be the cause. A service that sent `Retry-After` is not selected before that time.

A host name with several addresses counts as several services: each has a clock of its own and can
fail alone.
"""

from __future__ import annotations

import dataclasses
import random
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import LOOPBACK_HOSTS
from hourmark.config.redaction import redact_setting
from hourmark.errors import ConfigError
from hourmark_producer.send.connections import ServiceAddress

FIRST_S: Final = 0.1  # the pause after a first failure
RESOLVE_EVERY_S: Final = 30.0
Resolve = Callable[[str, int], Sequence[str]]


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class ServiceEndpoint:
    """One address of a delivery service, and its current state. Only `ServiceSelector` modifies it.

    Attributes:
        url: Configured URL without a trailing slash.
        address: Address to connect to.
        in_flight: Number of requests in flight.
        last_turn: Number of the latest selection of this service. A higher number is more recent.
        failures: Number of consecutive failures.
        backoff_until_s: Time until which other services are preferred, in monotonic seconds.
        retry_after_until_s: Time until which no request is sent because of `Retry-After`, in
            monotonic seconds.
        failed_at_s: Time of the first of the consecutive failures, in monotonic seconds.
        last_error: Why the latest request failed; empty if it succeeded.
        acknowledged_ranges: Number of ranges that the service acknowledged.
    """

    url: str
    address: ServiceAddress
    in_flight: int = 0  # requests
    last_turn: int = 0  # the higher, the later it was asked
    failures: int = 0  # in a row
    backoff_until_s: float = float("-inf")
    retry_after_until_s: float = float("-inf")  # from Retry-After
    failed_at_s: float = 0.0  # the first of `failures`
    last_error: str = (
        ""  # what its latest answer, or the want of one, came to; empty where that was well
    )
    acknowledged_ranges: int = 0  # acknowledged

    @property
    def name(self) -> str:
        """Return the unique name of the service: its URL, and the IP address if it was resolved."""
        return f"{self.url} at {self.address.ip}" if self.address.ip else self.url


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """The state of one delivery service, as shown to operators.

    Attributes:
        service: URL without secrets, followed by the IP address if the host was resolved.
        ranges: Number of ranges that the service acknowledged since the start.
        failing_seconds: Seconds since the service began to fail; None if it is not failing.
        trouble: Why the latest request failed; empty if it succeeded.
    """

    service: str
    ranges: int
    failing_seconds: float | None
    trouble: str


def backoff_delay_s(failures: int, max_s: float, rng: random.Random) -> float:
    """Return an exponential backoff delay with jitter, in seconds.

    The base delay doubles with each failure, up to `max_s`. The result is a random value between
    half the base delay and the full base delay.

    Args:
        failures: Number of consecutive failures, including this one; at least 1.
        max_s: Maximum delay in seconds.
        rng: Source of the jitter.
    """
    assert failures >= 1, "there is no pause without a failure"
    return min(max_s, FIRST_S * (1 << min(failures - 1, 30))) * rng.uniform(0.5, 1.0)


def resolve_host(host: str, port: int) -> list[str]:
    """Resolve a host name to its IP addresses.

    Args:
        host: Host name.
        port: TCP port.

    Returns:
        The addresses as text, without duplicates.

    Raises:
        OSError: The name cannot be resolved.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


class ServiceSelector:
    """Selects the delivery service for each request, and keeps the state of all services.

    A healthy service with the fewest requests in flight is preferred. A failed service is tried
    again after an exponential backoff. Thread-safe.

    Args:
        urls: Configured service URLs, at least one.
        clock: Clock of this host.
        backoff_max_s: Maximum backoff in seconds.
        token_file: File with the bearer token; None if requests carry no token.

    Raises:
        ConfigError: A URL is invalid, or the token would be sent unencrypted to another machine.
    """

    def __init__(
        self,
        urls: Sequence[str],
        clock: Clock,
        backoff_max_s: float,
        token_file: Path | None = None,
    ) -> None:
        self._clock = clock
        self._backoff_max_s = backoff_max_s
        self._lock = threading.Lock()
        self._services = [
            ServiceEndpoint(url=url.rstrip("/"), address=_parse_service_url(url, token_file))
            for url in urls
        ]
        self._urls = [(service.url, service.address) for service in self._services]
        self._rng = random.Random()  # noqa: S311  # jitter is no secret
        self._turns = 0
        self._resolved_s = float("-inf")

    @property
    def first(self) -> ServiceEndpoint:
        """Return the first service in the order of the configuration.

        If its host name resolves to several addresses, the first of them is returned.
        """
        return self._services[0]

    def endpoints(self) -> list[ServiceEndpoint]:
        """Return all services with their current state, in the order of the configuration.

        A host name that resolves to several addresses results in one entry per address.
        """
        with self._lock:
            return list(self._services)

    def select(
        self, tried: Collection[ServiceEndpoint], preferred: ServiceEndpoint | None = None
    ) -> ServiceEndpoint | None:
        """Select the delivery service for the next request.

        The preferred choice is a service that is not in backoff and has the fewest requests in
        flight.

        Args:
            tried: Services that already failed this request. They are not selected.
            preferred: Service to select if it is available and its latest request did not fail.

        Returns:
            The service; None if all services were tried, or may not be used before their
            `Retry-After` time.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            free = [
                one
                for one in self._services
                if one not in tried and one.retry_after_until_s <= now_s
            ]
            if not free:
                return None
            if preferred is not None and preferred in free and not preferred.failures:
                return preferred
            chosen = min(
                free, key=lambda one: (one.backoff_until_s > now_s, one.in_flight, one.last_turn)
            )
            self._turns += 1
            chosen.last_turn = self._turns
            if chosen.failures:  # this request probes the service; others wait for its outcome
                chosen.backoff_until_s = now_s + backoff_delay_s(
                    chosen.failures + 1, self._backoff_max_s, self._rng
                )
            return chosen

    def request_started(self, service: ServiceEndpoint) -> int:
        """Record that a request to a service was started.

        The caller must call `request_succeeded` or `request_failed` once the outcome is known.

        Args:
            service: The service.

        Returns:
            Number of consecutive failures of the service before this request. Pass it to
            `request_failed`.
        """
        with self._lock:
            service.in_flight += 1
            return service.failures

    def request_succeeded(self, service: ServiceEndpoint, *, ranges: int = 0) -> None:
        """Record that a service accepted a request. Its failures and its backoff are reset.

        Args:
            service: The service.
            ranges: Number of byte ranges that it acknowledged with the response.
        """
        with self._lock:
            service.in_flight -= 1
            service.failures, service.last_error, service.acknowledged_ranges = (
                0,
                "",
                service.acknowledged_ranges + ranges,
            )
            service.backoff_until_s = float(
                "-inf"
            )  # while it is closed nothing is asked: this was before

    def request_failed(
        self,
        service: ServiceEndpoint,
        error: str,
        *,
        failures_before: int,
        retry_after_s: float = 0.0,
    ) -> None:
        """Record that a service did not accept a request, and start or extend its backoff.

        Args:
            service: The service.
            error: Why the request failed, for status output.
            failures_before: Result of `request_started`. Requests that fail concurrently count as
                one failure.
            retry_after_s: Value of the `Retry-After` header in seconds; 0 if there was none.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            service.in_flight -= 1
            service.last_error = error
            if not service.failures:
                service.failed_at_s = now_s
            service.failures = max(service.failures, failures_before + 1)
            pause_s = backoff_delay_s(service.failures, self._backoff_max_s, self._rng)
            service.backoff_until_s = max(service.backoff_until_s, now_s + pause_s)
            if retry_after_s:
                service.retry_after_until_s = max(
                    service.retry_after_until_s, now_s + retry_after_s
                )

    def retry_after_s(self) -> float:
        """Return the time until a request may be sent again, according to `Retry-After` headers.

        Returns:
            The shortest remaining time of all services in seconds; 0 if at least one service may
            be used now.
        """
        with self._lock:
            return max(
                0.0,
                min(one.retry_after_until_s for one in self._services) - self._clock.monotonic_s(),
            )

    def last_errors(self) -> str:
        """Return the latest error of each failing service, as text for a message.

        Returns:
            The errors, separated by semicolons and without duplicates; empty if no service is
            failing.
        """
        with self._lock:
            return "; ".join(
                dict.fromkeys(one.last_error for one in self._services if one.last_error)
            )

    def refresh_addresses(self, resolve: Resolve = resolve_host) -> None:
        """Resolve the host names of all services again, at most every `RESOLVE_EVERY_S` seconds.

        The call may take several seconds. It does not block other threads. If a name cannot be
        resolved, it keeps its addresses, and no exception is raised.

        Args:
            resolve: Function that returns the IP addresses of a host name and port.
        """
        if self._clock.monotonic_s() - self._resolved_s < RESOLVE_EVERY_S:
            return
        found = [
            (url, address._replace(ip=at))
            for url, address in self._urls
            for at in self._resolve_ips(url, address, resolve)
        ]
        with self._lock:
            self._resolved_s = self._clock.monotonic_s()
            known = {(one.url, one.address): one for one in self._services}
            self._services = [
                known.get(each) or ServiceEndpoint(url=each[0], address=each[1])
                for each in dict.fromkeys(found)
            ]

    def _resolve_ips(self, url: str, address: ServiceAddress, resolve: Resolve) -> list[str]:
        if address.is_ip_literal:
            return [""]
        try:
            return list(resolve(address.host, address.port)) or [""]
        except (OSError, UnicodeError):
            with self._lock:
                return [one.address.ip for one in self._services if one.url == url]

    def statuses(self) -> list[ServiceStatus]:
        """Return the state of each service for operators, in the order of the configuration."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            return [
                ServiceStatus(
                    service=redact_setting(one.url)
                    + (f" at {one.address.ip}" if one.address.ip else ""),
                    ranges=one.acknowledged_ranges,
                    failing_seconds=max(0.0, now_s - one.failed_at_s) if one.failures else None,
                    trouble=one.last_error,
                )
                for one in self._services
            ]


def _parse_service_url(url: str, token_file: Path | None) -> ServiceAddress:
    try:
        address = ServiceAddress.from_url(url)
    except ValueError as error:
        raise ConfigError(
            f"tailer.service_urls = {redact_setting(url)!r}: allowed: http://host:port or https://host:port"
        ) from error
    if token_file is not None and not address.is_tls and address.host not in LOOPBACK_HOSTS:
        raise ConfigError(
            f"tailer.service_urls = {redact_setting(url)!r}: the token in tailer.token_file would "
            "be sent unencrypted; use https://"
        )
    return address
