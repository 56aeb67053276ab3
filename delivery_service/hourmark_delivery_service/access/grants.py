"""Authorization of a request: authentication (401), coverage (403) and rate limits (429).

The token is checked before the body is read. A request in flight completes even if its token
expires or is revoked meanwhile. The endpoints check types and hosts with the values that they have
parsed themselves, so that no value is interpreted in two ways.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request

from hourmark.clock import Clock
from hourmark.records.host_reports import HostReport
from hourmark_delivery_service.access.rate_limits import TokenRateLimiter
from hourmark_delivery_service.access.token import Token, parse_token_id, verify_token
from hourmark_delivery_service.access.token_store import TokenStore
from hourmark_delivery_service.errors import (
    Forbidden,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from hourmark_delivery_service.metrics import ServiceMetrics

GRANT: Final = "hourmark.grant"  # in a request's scope
_CREATE: Final = (
    "create a token with `hourmark token create`, and send it as `Authorization: Bearer TOKEN`"
)


class Grant:
    """The permissions and rate limits of one authenticated request.

    If a check fails, it raises an error with the HTTP status of the response. If the service
    requires no tokens, every check succeeds and no rate limit applies.

    Args:
        metrics: Metrics that count denied requests.
        allowance: Rate limiter of the access token that authenticated the request. None if the
            service requires no tokens.
    """

    def __init__(self, metrics: ServiceMetrics, allowance: TokenRateLimiter | None = None) -> None:
        self._metrics = metrics
        self._allowance = allowance

    @property
    def token_id(self) -> str:
        """Return the id of the access token that authenticated this request.

        Returns an empty string if the service requires no tokens.
        """
        return "" if self._allowance is None else self._allowance.token.id

    def check_types(self, event_types: Iterable[str]) -> None:
        """Check that the token covers all given event types.

        Args:
            event_types: Names of the event types that the request contains or may contain.

        Raises:
            Forbidden: If the token does not cover all of them.
        """
        if self._allowance is None:
            return
        token = self._allowance.token
        for event_type in event_types:
            if not token.covers_type(event_type):
                raise self._forbidden(
                    f"the type {event_type!r:.120}", f"types {', '.join(token.types)}"
                )

    def check_host(self, name: str, host_id: str) -> None:
        """Check that the request may post byte ranges of files on this host.

        Args:
            name: Host name.
            host_id: Host id, 32 hexadecimal digits.

        Raises:
            Forbidden: If the token does not cover the host name or the host id.
        """
        if self._allowance is None:
            return
        token = self._allowance.token
        if not token.covers_host(name, host_id):
            what = f"the host {name!r:.120} (host id {host_id:.32})"
            raise self._forbidden(
                what, f"hosts {', '.join(token.hosts)} {' '.join(token.host_ids)}".rstrip()
            )

    def check_report(self, report: HostReport) -> None:
        """Check that the request may post a host report.

        A host report states the time up to which a host has sent all its data. It determines when
        an hourly bucket of events may be closed, so the token needs a separate permission for it.

        Args:
            report: Report in the request. It identifies the reporting component and its host.

        Raises:
            Forbidden: If the token does not cover reports of this host.
        """
        if self._allowance is None:
            return
        token, name, host_id = self._allowance.token, report.host_name, report.host_id
        if not token.covers_report(report.kind, name, host_id):
            option, hosts = "--reports", token.reports
            if report.kind == "service":
                option, hosts = "--service-reports", token.service_reports
            covers = ", ".join(token.hosts if hosts is None else hosts) or "none"
            what = f"reports of the {report.kind} {name!r:.120} (host id {host_id:.32})"
            raise self._forbidden(
                what, f"reports of {covers} {' '.join(token.host_ids)}".rstrip() + f" ({option})"
            )

    def check_rate(self) -> None:
        """Check that earlier requests have not exhausted the token's rate limits.

        Raises:
            TooManyRequests: If a limit is exhausted. The error contains the retry delay in seconds.
        """
        if self._allowance is not None and (wait_s := self._allowance.retry_after_s()):
            self._metrics.denied.labels("rate").inc()
            raise TooManyRequests(
                f"the token {self._allowance.token.id} has exceeded its rate limit at this "
                "instance",
                wait_s,
            )

    def charge(self, *, size: int = 0, events: int = 0) -> None:
        """Charge the size of a request to the token's rate limits. The call never blocks.

        Args:
            size: Number of decompressed bytes of the body.
            events: Number of events and dead letters (records of invalid lines) in the request.
        """
        if self._allowance is not None:
            self._allowance.charge(size=size, events=events)

    def _forbidden(self, what: str, covers: str) -> Forbidden:
        self._metrics.denied.labels("not_covered").inc()
        assert self._allowance is not None
        token = self._allowance.token
        return Forbidden(
            "not_covered",
            f"the token {token.id} ({token.name}) does not cover {what}: it covers {covers:.500}",
        )


class AccessControl:
    """Authenticates HTTP requests by their bearer tokens, using the tokens read from Kafka.

    Not thread-safe: use it in one event loop.

    Args:
        clock: Source of the current time.
        metrics: Metrics that count denied requests.
        required: Whether the service requires tokens.

    Attributes:
        required: Whether the service requires tokens. If not, every request has all permissions.
        token_store: The known tokens.
    """

    def __init__(self, clock: Clock, metrics: ServiceMetrics, *, required: bool) -> None:
        self.required = required
        self.token_store = TokenStore(clock, metrics)
        self._clock = clock
        self._metrics = metrics
        self._everything = Grant(metrics)
        self._allowances: dict[str, TokenRateLimiter] = {}

    def not_ready_reasons(self) -> list[str]:
        """Return the reasons why no request can be authenticated yet.

        Returns:
            One message if tokens are required but the token topic has not been read yet. Otherwise
            an empty list.
        """
        if not self.required or self.token_store.caught_up:
            return []
        return [
            "no tokens are available yet: hourmark.tokens was not read, or `hourmark token "
            f"create` was never run{self.token_store.read_error}"
        ]

    def warnings(self) -> list[str]:
        """Return warnings about tokens that do not prevent the service from accepting requests.

        Returns:
            Messages for the operator, for example if Kafka is unreachable and new revocations are
            therefore unknown. Empty if there are no problems, or if no tokens are required.
        """
        return self.token_store.warnings() if self.required else []

    def grant(self, headers: Headers) -> Grant:
        """Authenticate a request by its `Authorization` header and return its permissions.

        If the service requires no tokens, the header is ignored and all permissions are granted.

        Args:
            headers: Headers of the request. Exactly one `Authorization: Bearer TOKEN` is expected.

        Returns:
            The permissions and rate limits of the request.

        Raises:
            Unauthorized: If the header is missing, or its token is unknown, revoked or expired.
            ServiceUnavailable: If no tokens have been read from Kafka yet.
        """
        if not self.required:
            return self._everything
        try:
            return Grant(self._metrics, self._allowance(self._authenticated(headers)))
        except Unauthorized as error:
            self._metrics.denied.labels(error.code).inc()
            raise

    def _authenticated(self, headers: Headers) -> Token:
        text = _bearer(headers)
        if waits := self.not_ready_reasons():
            raise ServiceUnavailable("not_ready", "; ".join(waits))
        token = self.token_store.get(parse_token_id(text) or "")
        if not verify_token(token, text):
            raise Unauthorized("unknown_token", "this token is unknown", _CREATE)
        assert token is not None, "is_text_of says so"
        if token.revoked:
            raise Unauthorized(
                "revoked_token", f"the token {token.id} ({token.name}) was revoked", _CREATE
            )
        if token.expired(self._clock.now_ms()):
            raise Unauthorized(
                "expired_token", f"the token {token.id} ({token.name}) has expired", _CREATE
            )
        return token

    def _allowance(self, token: Token) -> TokenRateLimiter:
        known = self._allowances.get(token.id)
        if known is None or known.token != token:
            known = self._allowances[token.id] = TokenRateLimiter(token, self._clock)
        return known


def request_grant(request: Request) -> Grant:
    """Return the permissions that the authentication middleware granted to a request.

    Args:
        request: Request that has passed `AuthenticationMiddleware`.

    Raises:
        KeyError: If the request did not pass the middleware, or its path needs no authentication.
    """
    grant = request.scope[GRANT]
    assert isinstance(grant, Grant)
    return grant


def _bearer(headers: Headers) -> str:
    given = headers.getlist("authorization")
    if len(given) != 1:
        many = (
            "the request has several Authorization headers"
            if given
            else "the request has no Authorization header"
        )
        raise Unauthorized("no_token", many, _CREATE)
    scheme, _, text = given[0].partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized(
            "no_token", "the Authorization header does not use the scheme Bearer", _CREATE
        )
    return text.strip(" ")
