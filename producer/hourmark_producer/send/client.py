"""The delivery service as seen from a log host: its clock, its rules, and what it says to ranges
and reports.

Every answer carries the service's clock and rules revision. The latest reading is what the next
range is given, never this host's own clock, never one that is not believed (`service_clocks`), and
never one that is before a believed reading of any other service: see `ServiceLink.fresh`.

    HourmarkError
    ├── Busy       no answer, or one that says: later (429, 5xx). Every service was asked that may be; try again
    └── Refused    an answer that says: never like this (other than 200, 429, 5xx, or a 200 that is not as agreed), by all
        ├── NotAllowed  401 or 403: they want another token. Try again until there is one
        └── TooLarge    413: smaller ranges are taken, perhaps
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from hourmark.clock import Clock
from hourmark.config.groups import Tailer as TailerConfig
from hourmark.config.redaction import shown
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
    RangeAnswer,
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

READING_AGE_MAX_S: Final = 2.0  # an older reading is renewed before a range is made of it
RANGE_TIMEOUT_S: Final = (
    60.0  # above the service's own delivery timeout (30 s), so that its 503 is heard
)
SHORT_TIMEOUT_S: Final = 10.0
RETRY_AFTER_MAX_S: Final = 60.0
_JSON: Final = {"Content-Type": "application/json"}


class ServiceUnavailable(Unavailable):
    """Not now. `retry_after_s` is what the service asked for; 0 where it did not."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestRefused(HourmarkError):
    """Not like this: a misconfiguration or a bug on either side."""


class RequestUnauthorized(RequestRefused):
    """Not with this token, or not without one."""


class RequestTooLarge(RequestRefused):
    """Not so much at once."""


class _PendingRequest(NamedTuple):
    """A request to one service.

    `before`: how often in a row it had failed. `asked`: why it could not be sent, perhaps.
    """

    service: ServiceEndpoint
    path: str
    failures_before: int
    response: PendingResponse | Exception


class SentRange:
    """A range that was sent to the first service that may take it. It must end with `answer`."""

    def __init__(
        self,
        begun: _PendingRequest | None,
        answered: Callable[[_PendingRequest | None], RangeAnswer],
    ) -> None:
        self._begun, self._answered = begun, answered

    def fileno(self) -> int | None:
        """What can be read from once its answer is there; None: nothing is waited for."""
        return (
            self._begun.response.fileno()
            if self._begun and isinstance(self._begun.response, PendingResponse)
            else None
        )

    def result(self) -> RangeAnswer:
        """Wait until it is acknowledged; where the first service fails, by another.
        Busy, Refused.
        """
        return self._answered(self._begun)


class DeliveryServiceClient:
    """One tailer's connections to its delivery services. Safe to use from several threads."""

    def __init__(self, config: TailerConfig, clock: Clock, floor: ClockFloor | None = None) -> None:
        self.services = ServiceSelector(
            config.service_urls, clock, config.backoff_max_seconds, config.token_file
        )
        self._report_service = self.services.first  # took the latest report
        self._clock = clock
        self._rules: str | None = None  # as the latest answer said
        self._clocks = ServiceClocks(clock)
        self._floor = floor or ClockFloor()  # of all that were believed
        self._noting = threading.Lock()
        self._hello = threading.Lock()
        self._credentials = Credentials(config, clock)
        self._connections = ConnectionPool()

    def close(self) -> None:
        """Of its connections those that are idle now, and the others after their request."""
        self._connections.close()

    def current_reading(self, age_max_s: float = READING_AGE_MAX_S) -> ClockReading:
        """A reading of at most this age; asks where there is none. Busy, Refused.

        Its clock is not before any that was believed so far, of whatever service: what was claimed
        to one service is over for ranges that go to others, too.
        """
        with self._hello:
            reading, asked_s = self._newest_reading(), self._clock.monotonic_s()
            if reading is None or reading.rules is None or asked_s - reading.at_s > age_max_s:
                reading = self._request_reading(asked_s)
        highest_ms = self._floor.ms
        is_near = (
            highest_ms - reading.clock_ms <= CLOCKS_APART_MS_MAX
        )  # else one of them is plainly wrong
        return reading._replace(clock_ms=max(reading.clock_ms, highest_ms)) if is_near else reading

    def _request_reading(self, asked_s: float) -> ClockReading:
        """A reading of this moment, of a service that is believed. Busy, Refused."""
        service, _ = self._send_to_any(self._say_hello, self._preferred())
        self._poll_other_clocks()
        if service.name in (doubted := self.clock_errors()):
            for other in self._healthy(self._names() - doubted.keys()):
                with suppress(ServiceUnavailable, RequestRefused):
                    self._say_hello(other)
                    break
        reading = self._trusted_readings().get(service.name) or self._newest_reading()
        if reading is None:
            raise ServiceUnavailable(
                f"no {CLOCK_HEADER} in the answer of {shown(service.url)}; is a delivery "
                "service there?"
            )
        if reading.at_s < asked_s:
            trouble = self.clock_errors().get(service.name, "it says no clock")
            raise ServiceUnavailable(
                f"{shown(service.name)}: {trouble}, and no other answers; set that clock right"
            )
        return reading

    def _say_hello(self, service: ServiceEndpoint) -> HttpResponse:
        return self._request(service, "GET", HELLO_PATH, {}, b"", SHORT_TIMEOUT_S)

    def _poll_other_clocks(self) -> None:
        """Where no two clocks agree, this host's among them, services that were not heard are
        asked, until two do.
        """
        until_s = self._clock.monotonic_s() + SHORT_TIMEOUT_S
        while self._clock.monotonic_s() < until_s and (
            other := next(self._healthy(self._unread_services()), None)
        ):
            with suppress(ServiceUnavailable, RequestRefused):
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
        """Those of these services that did not fail when they were asked last."""
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
        """Of those that are believed."""
        return max(
            self._trusted_readings().values(), key=lambda reading: reading.at_s, default=None
        )

    def _preferred(self) -> ServiceEndpoint:
        """The one that took the latest report; another that is well, where its clock is not
        believed.
        """
        believed = self._trusted_readings()
        return (
            self._report_service
            if self._report_service.name in believed
            else next(self._healthy(believed), self._report_service)
        )

    def send_range(self, byte_range: ByteRange, body: bytes) -> SentRange:
        """Send a range, `body` compressed with zstd.

        It must end with `answer`, and fails there alone.
        """
        headers = range_headers(byte_range) | {
            "Content-Encoding": "zstd",
            "Content-Type": "application/octet-stream",
        }

        def begin(service: ServiceEndpoint) -> _PendingRequest:
            return self._send(service, "POST", RANGES_PATH, headers, body, RANGE_TIMEOUT_S)

        def answered(begun: _PendingRequest | None) -> RangeAnswer:
            service, response = self._send_to_any(
                lambda service: self._finish(begin(service)), begun=begun
            )
            return _parse_range_answer(byte_range, shown(service.url), response)

        first = self.services.select(())
        return SentRange(None if first is None else begin(first), answered)

    def post_events(self, event_type: str, body: bytes) -> Mapping[str, Any]:
        """What the answer to a batch of events says, once they are acknowledged. Busy, Refused."""
        path = EVENTS_PATH.format(type=event_type)
        _, answer = self._send_to_any(
            lambda service: self._request(service, "POST", path, _JSON, body, RANGE_TIMEOUT_S)
        )
        told = json.loads(answer.content)
        assert isinstance(told, dict), "an answer to events is an object"
        return told

    def clocks_ms(self) -> dict[str, int]:
        """What each service's clock read when it answered last, by service."""
        with self._noting:
            return self._clocks.clocks_ms()

    def clock_errors(self) -> dict[str, str]:
        """What is wrong with the clock of each service that is not believed: no range is given its
        time.
        """
        names = self._names()
        with self._noting:
            return self._clocks.errors(names)

    def send_report(self, report_to: Callable[[str], HostReport]) -> None:
        """Deliver a host report, made for the service that it goes to. Busy, Refused.

        It goes where the one before went, as long as that is well: a claim is made by a clock that
        was read a moment ago.
        """
        self.services.refresh_addresses()
        with self._noting:
            self._floor.save()

        def tell(service: ServiceEndpoint) -> HttpResponse:
            return self._post_report(service, report_to(service.name))

        self._report_service, _ = self._send_to_any(tell, self._preferred())

    def _post_report(self, service: ServiceEndpoint, report: HostReport) -> HttpResponse:
        """To a service of a version before `unknown_losses` it goes without them."""
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
            report_to_json(report, tells_unknown=False),
            SHORT_TIMEOUT_S,
        )

    def _send_to_any(
        self,
        ask: Callable[[ServiceEndpoint], HttpResponse],
        preferred: ServiceEndpoint | None = None,
        begun: _PendingRequest | None = None,
    ) -> tuple[ServiceEndpoint, HttpResponse]:
        """The answer, which is 200, and whose it is.

        Each that may be asked is asked once, after a refusal too: another may be of a newer
        version. Busy where one of them may yet take it, else Refused. `begun`: one was asked
        already.
        """
        tried, problems = set[ServiceEndpoint](), list[ServiceUnavailable | RequestRefused]()
        while (
            service := begun.service
            if begun and not tried
            else self.services.select(tried, preferred)
        ) is not None:
            begun_here = begun if not tried else None
            tried.add(service)
            try:
                return service, self._finish(begun_here) if begun_here else ask(service)
            except (ServiceUnavailable, RequestRefused) as error:
                problems.append(error)
        wait_s = self.services.retry_after_s()
        if not problems:
            raise ServiceUnavailable(
                f"every delivery service has asked to wait: {self.services.last_errors()}", wait_s
            )
        worst = min(
            problems,
            key=lambda problem: (
                not isinstance(problem, ServiceUnavailable),
                not isinstance(problem, RequestUnauthorized),
            ),
        )
        if isinstance(worst, ServiceUnavailable):
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
        """One request to one service; the answer, which is 200. Busy, Refused."""
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
        """Ask one service. It must `_end`."""
        before, mine = self.services.request_started(service), self._credentials.current()
        try:
            asked: PendingResponse | Exception = self._connections.send(
                service.address,
                method,
                path,
                {**headers, **mine.headers},
                content,
                timeout_s=timeout_s,
                tls=mine.tls,
            )
        except Exception as error:  # noqa: BLE001  # raised at its end
            asked = error
        return _PendingRequest(service, path, before, asked)

    def _finish(self, begun: _PendingRequest) -> HttpResponse:
        """The answer, which is 200. Busy, Refused."""
        service, retry_after_s = begun.service, 0.0
        problem: ServiceUnavailable | RequestRefused | None = ServiceUnavailable("it was given up")
        try:
            answer = self._read_response(begun)
            problem, retry_after_s = (
                _response_error(service, begun.path, answer),
                _retry_after_s(answer),
            )
        except ServiceUnavailable as error:
            problem = error
            raise
        finally:
            if problem is None:
                self.services.request_succeeded(service, ranges=int(begun.path == RANGES_PATH))
            else:
                self.services.request_failed(
                    service, str(problem), before=begun.failures_before, retry_after_s=retry_after_s
                )
        if problem is not None:
            raise problem
        return answer

    def _read_response(self, begun: _PendingRequest) -> HttpResponse:
        """Whatever its status. Busy where there is none."""
        try:
            if isinstance(begun.response, Exception):
                raise begun.response
            answer = begun.response.result()
        except TRANSPORT_ERRORS as error:
            hint = (
                "; tailer.tls.ca names who is believed"
                if "certificate verify failed" in str(error)
                else ""
            )
            raise ServiceUnavailable(
                f"{shown(begun.service.url)}{begun.path}: "
                f"{str(error) or type(error).__name__}{hint}"
            ) from error
        self._record_headers(answer, begun.service.name)
        return answer

    def _record_headers(self, answer: HttpResponse, service: str) -> None:
        text = answer.headers.get(CLOCK_HEADER, "")
        if text.isascii() and text.isdigit() and len(text) <= 19:
            names = self._names()
            with self._noting:
                self._rules = answer.headers.get(RULES_HEADER) or self._rules
                self._clocks.record(
                    service, ClockReading(int(text), self._rules, self._clock.monotonic_s())
                )
                if service in self._clocks.trusted_readings(names):
                    self._floor.observe(int(text))


def _parse_range_answer(byte_range: ByteRange, url: str, response: HttpResponse) -> RangeAnswer:
    """What a 200 says. Refused."""
    try:
        fields = json.loads(response.content)
        end, events, dead_letters = (
            int(fields[name]) for name in ("end", "events", "dead_letters")
        )
        reasons = {
            str(reason): int(count)
            for reason, count in fields.get("dead_letter_reasons", {}).items()
        }
        answer = RangeAnswer(end, events, dead_letters, int(fields.get("blanks", 0)), reasons)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = response.content[:200].decode(errors="replace")
        raise RequestRefused(
            f"{url} answered 200 without end, events and dead_letters: {said!r}"
        ) from error
    if answer.end != byte_range.end:
        raise RequestRefused(
            f"{url} acknowledged up to byte {answer.end}, not up to {byte_range.end} as was sent"
        )
    return answer


def _response_error(
    service: ServiceEndpoint, path: str, answer: HttpResponse
) -> ServiceUnavailable | RequestRefused | None:
    """None: it was taken."""
    if answer.status == 200:
        return None
    said = f"{shown(service.url)}{path} answered {answer.status}: {_error_message(answer)}"
    if answer.status == 429 or answer.status >= 500:
        return ServiceUnavailable(said, _retry_after_s(answer))
    if answer.status in (401, 403):
        return RequestUnauthorized(
            f"{said}. Put a token that covers this host and its types into tailer.token_file"
        )
    return RequestTooLarge(said) if answer.status == 413 else RequestRefused(said)


def _error_message(answer: HttpResponse) -> str:
    """What an answer says went wrong; the service's own errors carry a detail and a next step."""
    try:
        problem = json.loads(answer.content)
        return f"{problem['detail']}; {problem['next_step']}"[:300]
    except (ValueError, KeyError, TypeError):
        return answer.content[:300].decode(errors="replace").strip() or answer.reason


def _retry_after_s(answer: HttpResponse) -> float:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), RETRY_AFTER_MAX_S) if text.isascii() and text.isdigit() else 0.0
