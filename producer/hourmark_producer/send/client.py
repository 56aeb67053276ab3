"""Client for the delivery services of one tailer: clock readings, ranges, events and host reports.

Every response carries the service's clock and its rules revision. A new range is stamped with a
trusted clock reading of a service (see `clocks`), never with this host's clock and never with a
time before an earlier trusted reading of any service.

Exceptions:

    HourmarkError
    ├── NoServiceAvailable       no response, or 429 or 5xx, from at least one service: retry later
    │   └── EventTypeUnavailable Kafka cannot store one of the range's event types: others can be sent
    └── RequestRefused           every service sent another status, or an invalid 200 response
        ├── RequestUnauthorized  401 or 403: the token is missing or does not cover the request
        └── RequestTooLarge      413: a smaller range may be accepted
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from hourmark.clock import Clock
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.config.redaction import redact_setting
from hourmark.errors import HourmarkError, Unavailable
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX, HostReport
from hourmark.records.ranges import ByteRange
from hourmark.records.wire import (
    CLOCK_HEADER,
    EVENTS_PATH,
    HELLO_PATH,
    RANGES_PATH,
    REPORTS_PATH,
    RULES_HEADER,
    TOPIC_UNAVAILABLE,
    RangeResponse,
    range_headers,
    report_to_json,
)
from hourmark_producer.send.clocks import ClockFloor, ClockReading, ServiceClocks
from hourmark_producer.send.connections import (
    TRANSPORT_ERRORS,
    ConnectionPool,
    HttpResponse,
    PendingResponse,
)
from hourmark_producer.send.credentials import Credentials
from hourmark_producer.send.services import ServiceEndpoint, ServiceSelector

READING_AGE_MAX_S: Final = 2.0  # an older reading is replaced before a range is stamped with it
RANGE_TIMEOUT_S: Final = (
    60.0  # above the service's own delivery timeout (30 s), so that its 503 arrives
)
SHORT_TIMEOUT_S: Final = 10.0
RETRY_AFTER_MAX_S: Final = 60.0
_JSON: Final = {"Content-Type": "application/json"}


class NoServiceAvailable(Unavailable):
    """Raised when no delivery service can currently accept a request. Retry it later.

    Attributes:
        retry_after_s: Seconds to wait, from the `Retry-After` header of the response; 0 if there
            was none.
    """

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EventTypeUnavailable(NoServiceAvailable):
    """Raised when the Kafka topic of an event type in the request is unavailable.

    The services accept requests that do not contain this type. Retry the same request later.
    """


class RequestRefused(HourmarkError):
    """Raised when the delivery services refuse a request, usually with a 4xx status other than 429.

    The cause is a misconfiguration or a bug. A retry succeeds only after the cause is removed.
    """


class RequestUnauthorized(RequestRefused):
    """Raised for status 401 or 403: the token is missing or does not permit the request.

    Write a token that covers this host and its event types to `tailer.token_file`.

    Attributes:
        condition_key: Key of the condition to report. It is the same for every service and request
            that the same reason concerns, such as one revoked token.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.condition_key = f"not allowed {reason}"


class RequestTooLarge(RequestRefused):
    """Raised for status 413: the request body exceeds the size limit of the services.

    The services accept this range only after an operator raises their limit. Later ranges are
    smaller.
    """


class _PendingRequest(NamedTuple):
    """A request that was sent to one delivery service and whose response is still pending.

    Attributes:
        service: The service.
        path: Request path.
        failures_before: Number of consecutive failures of the service before this request.
        response: The pending response, or the exception that sending raised.
    """

    service: ServiceEndpoint
    path: str
    failures_before: int
    response: PendingResponse | Exception


class SentRange:
    """A byte range that was sent to a delivery service and is not acknowledged yet.

    `DeliveryServiceClient.send_range` returns it. The caller must call `result` exactly once, which
    also releases the connection.
    """

    def __init__(
        self,
        pending: _PendingRequest | None,
        answered: Callable[[_PendingRequest | None], RangeResponse],
    ) -> None:
        self._pending, self._answered = pending, answered

    def fileno(self) -> int | None:
        """Return the file descriptor that becomes readable when the response arrives.

        Use it with poll(2).

        Returns:
            The descriptor, or None if the request could not be sent. `result` then tries other
            services.
        """
        return (
            self._pending.response.fileno()
            if self._pending and isinstance(self._pending.response, PendingResponse)
            else None
        )

    def result(self) -> RangeResponse:
        """Wait for the acknowledgement. If the service fails, try the other services.

        Returns:
            The response, with the numbers of events and of unparsable lines in the range.

        Raises:
            NoServiceAvailable: No service acknowledged the range. Send it again later.
            RequestRefused: Every service refused the range, or the acknowledgement is for another
                range.
        """
        return self._answered(self._pending)


class DeliveryServiceClient:
    """HTTP client of one tailer for all its delivery services, with failover. Thread-safe.

    Args:
        config: Settings with the service URLs, token, certificates and maximum backoff.
        clock: Clock of this host.
        floor: Latest time that a trusted service clock reported in earlier runs. The client returns
            no earlier times. None to start without this limit.

    Attributes:
        services: The configured services, with their failures and requests in flight.

    Raises:
        ConfigError: A URL, the token or a certificate cannot be used.
    """

    def __init__(self, config: TailerConfig, clock: Clock, floor: ClockFloor | None = None) -> None:
        self.services = ServiceSelector(
            config.service_urls, clock, config.backoff_max_seconds, config.token_file
        )
        self._report_service = self.services.first  # the service that took the latest report
        self._clock = clock
        self._rules: str | None = None  # in the latest response
        self._clocks = ServiceClocks(clock)
        self._floor = floor or ClockFloor()  # of all trusted readings
        self._noting = threading.Lock()
        self._hello = threading.Lock()
        self._credentials = Credentials(config, clock)
        self._connections = ConnectionPool()

    def close(self) -> None:
        """Close the idle connections. A connection in use is closed after its current request."""
        self._connections.close()

    def current_reading(self, age_max_s: float = READING_AGE_MAX_S) -> ClockReading:
        """Return the time of a delivery service whose clock is trusted.

        Each byte range carries such a time as its observation time. If the latest reading is too
        old, the method requests a new one from a service. The returned time never precedes an
        earlier trusted reading, unless the two differ so much that one of them must be wrong.

        Args:
            age_max_s: Maximum age of the latest reading, in seconds.

        Returns:
            The time, with the revision of the parsing rules that the service uses.

        Raises:
            NoServiceAvailable: No service with a trusted clock responded. Retry later.
            RequestRefused: Every service refused the request.
        """
        with self._hello:
            reading, requested_s = self._newest_reading(), self._clock.monotonic_s()
            if reading is None or reading.rules is None or requested_s - reading.at_s > age_max_s:
                reading = self._request_reading(requested_s)
        highest_ms = self._floor.ms
        is_near = (
            highest_ms - reading.clock_ms <= CLOCKS_APART_MS_MAX
        )  # else one of them is plainly wrong
        return reading._replace(clock_ms=max(reading.clock_ms, highest_ms)) if is_near else reading

    def _request_reading(self, requested_s: float) -> ClockReading:
        service, _ = self._send_to_any(self._say_hello, self._preferred())
        self._poll_other_clocks()
        if service.name in (doubted := self.clock_errors()):
            for other in self._healthy(self._names() - doubted.keys()):
                with suppress(NoServiceAvailable, RequestRefused):
                    self._say_hello(other)
                    break
        reading = self._trusted_readings().get(service.name) or self._newest_reading()
        if reading is None:
            raise NoServiceAvailable(
                f"the response of {redact_setting(service.url)} has no {CLOCK_HEADER} header; "
                "check that tailer.service_urls leads to a delivery service"
            )
        if reading.at_s < requested_s:
            trouble = self.clock_errors().get(service.name, "its response has no clock")
            raise NoServiceAvailable(
                f"{redact_setting(service.name)}: {trouble}, and no other service responds; "
                "correct the clock of that service"
            )
        return reading

    def _say_hello(self, service: ServiceEndpoint) -> HttpResponse:
        return self._request(service, "GET", HELLO_PATH, {}, b"", SHORT_TIMEOUT_S)

    def _poll_other_clocks(self) -> None:
        until_s = self._clock.monotonic_s() + SHORT_TIMEOUT_S
        while self._clock.monotonic_s() < until_s and (
            other := next(self._healthy(self._unread_services()), None)
        ):
            with suppress(NoServiceAvailable, RequestRefused):
                self._say_hello(other)

    def _unread_services(self) -> Collection[str]:
        names = self._names()
        with self._noting:
            return (
                names - self._clocks.recent_readings(names).keys()
                if self._clocks.lacks_agreement(names)
                else ()
            )

    def _names(self) -> set[str]:
        return {service.name for service in self.services.endpoints()}

    def _healthy(self, names: Collection[str]) -> Iterator[ServiceEndpoint]:
        return (
            service
            for service in self.services.endpoints()
            if service.name in names and not service.failures
        )

    def _trusted_readings(self) -> Mapping[str, ClockReading]:
        names = self._names()
        with self._noting:
            return self._clocks.trusted_readings(names)

    def _newest_reading(self) -> ClockReading | None:
        return max(
            self._trusted_readings().values(), key=lambda reading: reading.at_s, default=None
        )

    def _preferred(self) -> ServiceEndpoint:
        believed = self._trusted_readings()
        return (
            self._report_service
            if self._report_service.name in believed
            else next(self._healthy(believed), self._report_service)
        )

    def send_range(self, byte_range: ByteRange, body: bytes) -> SentRange:
        """Send a byte range without waiting for its acknowledgement.

        This method raises no exceptions. If sending fails, `SentRange.result` tries another service
        or raises the error.

        Args:
            byte_range: The range, whose fields are sent as request headers.
            body: Bytes of the range, compressed with Zstandard.

        Returns:
            The range in flight. The caller must call its method `result` exactly once.
        """
        headers = range_headers(byte_range) | {
            "Content-Encoding": "zstd",
            "Content-Type": "application/octet-stream",
        }

        def begin(service: ServiceEndpoint) -> _PendingRequest:
            return self._send(service, "POST", RANGES_PATH, headers, body, RANGE_TIMEOUT_S)

        def answered(pending: _PendingRequest | None) -> RangeResponse:
            service, response = self._send_to_any(
                lambda service: self._finish(begin(service)), pending=pending
            )
            return _parse_range_answer(byte_range, redact_setting(service.url), response)

        first = self.services.select(())
        return SentRange(None if first is None else begin(first), answered)

    def post_events(self, event_type: str, body: bytes) -> Mapping[str, Any]:
        """Send a batch of JSON events of one type and wait until a service acknowledges it.

        Args:
            event_type: Name of the event type.
            body: JSON text: one event as an object, or an array of events.

        Returns:
            The JSON object in the response. Its keys `events` and `dead_letters` are the numbers of
            accepted and rejected events.

        Raises:
            NoServiceAvailable: No service acknowledged the batch. Send it again later.
            RequestRefused: Every service refused the batch.
        """
        path = EVENTS_PATH.format(type=event_type)
        _, answer = self._send_to_any(
            lambda service: self._request(service, "POST", path, _JSON, body, RANGE_TIMEOUT_S)
        )
        response = json.loads(answer.content)
        assert isinstance(response, dict), "an answer to events is an object"
        return response

    def clocks_ms(self) -> dict[str, int]:
        """Return the time in the latest response of each delivery service.

        The times are not adjusted for the age of the responses.

        Returns:
            Maps each service name to its time in Unix milliseconds. Services that have not
            responded yet are omitted.
        """
        with self._noting:
            return self._clocks.clocks_ms()

    def clock_errors(self) -> dict[str, str]:
        """Return the reasons why the clocks of delivery services are not trusted.

        The time of such a service is never used as the observation time of a byte range.

        Returns:
            Maps the name of each such service to a message; empty if all clocks are trusted.
        """
        names = self._names()
        with self._noting:
            return self._clocks.errors(names)

    def send_report(self, report_to: Callable[[str], HostReport]) -> None:
        """Deliver a host report, preferably to the service that accepted the previous one.

        A host report states the time up to which this host has sent all data of each source. If a
        service fails, the other services are tried.

        Args:
            report_to: Function that returns the report for the service with the given name. Each
                service needs its own report, because the report uses that service's clock.

        Raises:
            NoServiceAvailable: No service accepted the report. Send the next report as usual.
            RequestRefused: Every service refused the report.
        """
        self.services.refresh_addresses()
        with self._noting:
            self._floor.save()

        def post(service: ServiceEndpoint) -> HttpResponse:
            return self._post_report(service, report_to(service.name))

        self._report_service, _ = self._send_to_any(post, self._preferred())

    def _post_report(self, service: ServiceEndpoint, report: HostReport) -> HttpResponse:
        # services of older versions do not accept unknown losses
        try:
            return self._request(
                service, "POST", REPORTS_PATH, _JSON, report_to_json(report), SHORT_TIMEOUT_S
            )
        except RequestRefused as error:
            if isinstance(error, RequestUnauthorized) or not any(
                s.unknown_losses or s.unrepeatable for s in report.sources
            ):
                raise
        return self._request(
            service,
            "POST",
            REPORTS_PATH,
            _JSON,
            report_to_json(report, with_unknown_losses=False),
            SHORT_TIMEOUT_S,
        )

    def _send_to_any(
        self,
        send: Callable[[ServiceEndpoint], HttpResponse],
        preferred: ServiceEndpoint | None = None,
        pending: _PendingRequest | None = None,
    ) -> tuple[ServiceEndpoint, HttpResponse]:
        # A refusal does not end the attempts, because another service may run a newer version.
        tried, problems = set[ServiceEndpoint](), list[NoServiceAvailable | RequestRefused]()
        while (
            service := pending.service
            if pending and not tried
            else self.services.select(tried, preferred)
        ) is not None:
            pending_here = pending if not tried else None
            tried.add(service)
            try:
                return service, self._finish(pending_here) if pending_here else send(service)
            except (NoServiceAvailable, RequestRefused) as error:
                problems.append(error)
        wait_s = self.services.retry_after_s()
        if not problems:
            raise NoServiceAvailable(
                f"all delivery services responded with Retry-After: {self.services.last_errors()}",
                wait_s,
            )
        worst = min(
            problems,
            key=lambda problem: (
                not isinstance(problem, EventTypeUnavailable),
                not isinstance(problem, NoServiceAvailable),
                not isinstance(problem, RequestUnauthorized),
            ),
        )
        if isinstance(worst, NoServiceAvailable):
            worst.retry_after_s = wait_s
        raise worst

    def _request(
        self,
        service: ServiceEndpoint,
        method: str,
        path: str,
        headers: Mapping[str, str],
        content: bytes,
        timeout_s: float,
    ) -> HttpResponse:
        return self._finish(self._send(service, method, path, headers, content, timeout_s))

    def _send(
        self,
        service: ServiceEndpoint,
        method: str,
        path: str,
        headers: Mapping[str, str],
        content: bytes,
        timeout_s: float,
    ) -> _PendingRequest:
        # an error of sending is raised by `_finish`
        before, mine = self.services.request_started(service), self._credentials.current()
        try:
            response: PendingResponse | Exception = self._connections.send(
                service.address,
                method,
                path,
                {**headers, **mine.headers},
                content,
                timeout_s=timeout_s,
                tls=mine.tls,
            )
        except Exception as error:  # noqa: BLE001  # raised at its end
            response = error
        return _PendingRequest(service, path, before, response)

    def _finish(self, pending: _PendingRequest) -> HttpResponse:
        service, retry_after_s = pending.service, 0.0
        problem: NoServiceAvailable | RequestRefused | None = NoServiceAvailable(
            "the request was abandoned"
        )
        try:
            answer = self._read_response(pending)
            problem, retry_after_s = (
                _response_error(service, pending.path, answer),
                _retry_after_s(answer),
            )
        except NoServiceAvailable as error:
            problem = error
            raise
        finally:
            if problem is None or isinstance(
                problem, EventTypeUnavailable
            ):  # the service itself works
                self.services.request_succeeded(
                    service, ranges=int(problem is None and pending.path == RANGES_PATH)
                )
            else:
                self.services.request_failed(
                    service,
                    str(problem),
                    failures_before=pending.failures_before,
                    retry_after_s=retry_after_s,
                )
        if problem is not None:
            raise problem
        return answer

    def _read_response(self, pending: _PendingRequest) -> HttpResponse:
        try:
            if isinstance(pending.response, Exception):
                raise pending.response
            answer = pending.response.result()
        except TRANSPORT_ERRORS as error:
            hint = (
                "; check that tailer.tls.ca contains the service's certificate authority"
                if "certificate verify failed" in str(error)
                else ""
            )
            raise NoServiceAvailable(
                f"{redact_setting(pending.service.url)}{pending.path}: "
                f"{str(error) or type(error).__name__}{hint}"
            ) from error
        self._record_headers(answer, pending.service.name)
        return answer

    def _record_headers(self, response: HttpResponse, service: str) -> None:
        text = response.headers.get(CLOCK_HEADER, "")
        if text.isascii() and text.isdigit() and len(text) <= 19:
            names = self._names()
            with self._noting:
                self._rules = response.headers.get(RULES_HEADER) or self._rules
                self._clocks.record(
                    service, ClockReading(int(text), self._rules, self._clock.monotonic_s())
                )
                if service in self._clocks.trusted_readings(names):
                    self._floor.observe(int(text))


def _parse_range_answer(byte_range: ByteRange, url: str, response: HttpResponse) -> RangeResponse:
    try:
        fields = json.loads(response.content)
        end, events, dead_letters = (
            int(fields[name]) for name in ("end", "events", "dead_letters")
        )
        reasons = {
            str(reason): int(count)
            for reason, count in fields.get("dead_letter_reasons", {}).items()
        }
        answer = RangeResponse(end, events, dead_letters, int(fields.get("blanks", 0)), reasons)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = response.content[:200].decode(errors="replace")
        raise RequestRefused(
            f"{url} responded with status 200, but without end, events and dead_letters: {said!r}"
        ) from error
    if answer.end != byte_range.end:
        raise RequestRefused(
            f"{url} acknowledged up to byte {answer.end}, but bytes up to {byte_range.end} were "
            "sent"
        )
    return answer


def _response_error(
    service: ServiceEndpoint, path: str, response: HttpResponse
) -> NoServiceAvailable | RequestRefused | None:
    if response.status == 200:
        return None
    reason = _error_message(response)
    said = f"{redact_setting(service.url)}{path} responded with status {response.status}: {reason}"
    if response.status == 503 and _problem_member(response, "code") == TOPIC_UNAVAILABLE:
        return EventTypeUnavailable(str(_problem_member(response, "detail") or said))
    if response.status == 429 or response.status >= 500:
        return NoServiceAvailable(said, _retry_after_s(response))
    if response.status in (401, 403):
        return RequestUnauthorized(
            f"{said}. Write a token that covers this host and its types to tailer.token_file",
            reason,
        )
    return RequestTooLarge(said) if response.status == 413 else RequestRefused(said)


def _problem_member(response: HttpResponse, name: str) -> object:
    # Return a member of a problem document (RFC 9457), or None if the body is no such document.
    try:
        return json.loads(response.content)[name]
    except (ValueError, KeyError, TypeError):
        return None


def _error_message(response: HttpResponse) -> str:
    detail, next_step = (_problem_member(response, name) for name in ("detail", "next_step"))
    if detail is None or next_step is None:
        return response.content[:300].decode(errors="replace").strip() or response.reason
    return f"{detail}; {next_step}"[:300]


def _retry_after_s(response: HttpResponse) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), RETRY_AFTER_MAX_S) if text.isascii() and text.isdigit() else 0.0
