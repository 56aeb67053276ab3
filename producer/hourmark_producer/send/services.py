"""Which delivery service is asked next, and how each of them stands: an even spread over those that
answer.

Of those that are well the one with the fewest requests under way is asked, and of these the one
that was not asked for longest. One that failed is asked again after a pause that grows with each
failure, by one request; until then only where no other is left, because what failed may have been
the request's own fault. One that said Retry-After is not asked before that.

A name that stands for several addresses is as many services: each has a clock of its own, and may
be down alone.
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
from hourmark.config.redaction import shown
from hourmark.errors import ConfigError
from hourmark_producer.send.connections import ServiceAddress

FIRST_S: Final = 0.1  # the pause after a first failure
RESOLVE_EVERY_S: Final = 30.0
Resolve = Callable[[str, int], Sequence[str]]


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class ServiceEndpoint:
    """One address. Changed by `Services` alone. Times are monotonic."""

    url: str
    address: ServiceAddress
    in_flight: int = 0  # requests
    last_turn: int = 0  # the higher, the later it was asked
    failures: int = 0  # in a row
    backoff_until_s: float = float("-inf")
    retry_after_until_s: float = float("-inf")  # it said Retry-After
    failed_at_s: float = 0.0  # the first of `failures`
    last_error: str = (
        ""  # what its latest answer, or the want of one, came to; empty where that was well
    )
    acknowledged_ranges: int = 0  # acknowledged

    @property
    def name(self) -> str:
        """What its clock is known by, and how it is told from others of the same URL."""
        return f"{self.url} at {self.address.ip}" if self.address.ip else self.url


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """How one stands. `failing_seconds`: None where its latest answer was well, or it was never
    asked.
    """

    service: str
    ranges: int
    failing_seconds: float | None
    trouble: str


def backoff_delay_s(failures: int, max_s: float, rng: random.Random) -> float:
    """Exponential with jitter, so that many tailers do not come back together.

    `failures`: in a row, this one included.
    """
    assert failures >= 1, "there is no pause without a failure"
    return min(max_s, FIRST_S * (1 << min(failures - 1, 30))) * rng.uniform(0.5, 1.0)


def resolve(host: str, port: int) -> list[str]:
    """The addresses that a name stands for now. OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


class ServiceSelector:
    """Safe to use from several threads."""

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
        """In the order of the configuration."""
        return self._services[0]

    def endpoints(self) -> list[ServiceEndpoint]:
        """In the order of the configuration."""
        with self._lock:
            return list(self._services)

    def select(
        self, tried: Collection[ServiceEndpoint], preferred: ServiceEndpoint | None = None
    ) -> ServiceEndpoint | None:
        """Whom to ask, but those `tried`; `preferred` where it is well, which is no turn of it.

        None: nobody at the moment.
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
            if chosen.failures:  # this request finds out: others need not
                chosen.backoff_until_s = now_s + backoff_delay_s(
                    chosen.failures + 1, self._backoff_max_s, self._rng
                )
            return chosen

    def request_started(self, service: ServiceEndpoint) -> int:
        """A request is under way, that must end with `answered` or `failed`; how often in a row it
        has failed so far.
        """
        with self._lock:
            service.in_flight += 1
            return service.failures

    def request_succeeded(self, service: ServiceEndpoint, *, ranges: int = 0) -> None:
        """As it should."""
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
        self, service: ServiceEndpoint, trouble: str, *, before: int, retry_after_s: float = 0.0
    ) -> None:
        """It did not take the request.

        `before`: its failures when it was asked, as those of one moment count once.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            service.in_flight -= 1
            service.last_error = trouble
            if not service.failures:
                service.failed_at_s = now_s
            service.failures = max(service.failures, before + 1)
            pause_s = backoff_delay_s(service.failures, self._backoff_max_s, self._rng)
            service.backoff_until_s = max(service.backoff_until_s, now_s + pause_s)
            if retry_after_s:
                service.retry_after_until_s = max(
                    service.retry_after_until_s, now_s + retry_after_s
                )

    def retry_after_s(self) -> float:
        """How long nobody may be asked; 0 where somebody may be."""
        with self._lock:
            return max(
                0.0,
                min(one.retry_after_until_s for one in self._services) - self._clock.monotonic_s(),
            )

    def last_errors(self) -> str:
        """What all of them said last."""
        with self._lock:
            return "; ".join(
                dict.fromkeys(one.last_error for one in self._services if one.last_error)
            )

    def refresh_addresses(self, resolve: Resolve = resolve) -> None:
        """Find what names stand for now, where that was long ago.

        It may take seconds; meanwhile others go on.
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
        """Empty text: whatever the name stands for when a connection is made."""
        if address.is_ip_literal:
            return [""]
        try:
            return list(resolve(address.host, address.port)) or [""]
        except (OSError, UnicodeError):
            with self._lock:
                return [one.address.ip for one in self._services if one.url == url]

    def statuses(self) -> list[ServiceStatus]:
        """In the order of the configuration."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            return [
                ServiceStatus(
                    service=shown(one.url) + (f" at {one.address.ip}" if one.address.ip else ""),
                    ranges=one.acknowledged_ranges,
                    failing_seconds=max(0.0, now_s - one.failed_at_s) if one.failures else None,
                    trouble=one.last_error,
                )
                for one in self._services
            ]


def _parse_service_url(url: str, token_file: Path | None) -> ServiceAddress:
    """ConfigError if it is none, or would carry the token where others can read it."""
    try:
        address = ServiceAddress.from_url(url)
    except ValueError as error:
        raise ConfigError(
            f"tailer.service_urls = {shown(url)!r}: allowed: http://host:port or https://host:port"
        ) from error
    if token_file is not None and not address.is_tls and address.host not in LOOPBACK_HOSTS:
        raise ConfigError(
            f"tailer.service_urls = {shown(url)!r}: tailer.token_file would go there in "
            "clear; use https://"
        )
    return address
