"""The delivery service as seen from a log host: its clock, its rules, and what it says to ranges and reports.

Every answer carries the service's clock and rules revision. The latest reading is what the next range is given: it is a
lower bound of the service's time now, and never this host's own clock.

    HourmarkError
    ├── Busy       no answer, or one that says: later (429, 5xx). Try again, at the next address
    └── Refused    an answer that says: never like this (other than 200, 429, 5xx, or a 200 that is not as agreed)
        └── NotAllowed  401 or 403: it wants another token. Try again, at the next address, until there is one
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark.config_groups import LOOPBACK_HOSTS
from hourmark.config_groups import Tailer as TailerConfig
from hourmark.errors import ConfigError, HourmarkError, Unavailable
from hourmark.hidden import shown
from hourmark.host_reports import HostReport
from hourmark.ranges import ByteRange
from hourmark.wire import (
    CLOCK_HEADER,
    HELLO_PATH,
    RANGES_PATH,
    REPORTS_PATH,
    RULES_HEADER,
    RangeAnswer,
    range_headers,
    report_to_json,
)
from hourmark_producer.connections import PROBLEMS, Address, Answer, Connections
from hourmark_producer.credentials import Credentials

READING_AGE_MAX_S: Final = 2.0  # an older reading is renewed before a range is made of it
RANGE_TIMEOUT_S: Final = 60.0  # above the service's own delivery timeout (30 s), so that its 503 is heard
SHORT_TIMEOUT_S: Final = 10.0
RETRY_AFTER_MAX_S: Final = 60.0
_JSON: Final = {"Content-Type": "application/json"}
_LOG = logging.getLogger(__name__)


class Busy(Unavailable):
    """Not now. `retry_after_s` is what the service asked for; 0 where it did not."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Refused(HourmarkError):
    """Not like this: a misconfiguration or a bug on either side."""


class NotAllowed(Refused):
    """Not with this token, or not without one."""


class Reading(NamedTuple):
    """What an answer said. `at_s`: monotonic, when it was received."""

    clock_ms: int
    rules: str | None
    at_s: float


class ServiceLink:
    """One tailer's connections to its delivery services. Safe to use from several threads."""

    def __init__(self, config: TailerConfig, clock: Clock) -> None:
        self._addresses = [_address(url, config.token_file) for url in config.service_urls]
        self._urls = [url.rstrip("/") for url in config.service_urls]
        self._turn = 0
        self._clock = clock
        self.latest: Reading | None = None  # of any age
        self._clocks_ms: dict[str, int] = {}  # the latest of each service
        self._hello = threading.Lock()
        self._credentials = Credentials(config, clock)
        self._connections = Connections()

    def close(self) -> None:
        """Of its connections those that are idle now, and the others after their request."""
        self._connections.close()

    def fresh(self, age_max_s: float = READING_AGE_MAX_S) -> Reading:
        """A reading of at most this age; asks where there is none. Busy, Refused."""
        with self._hello:
            reading = self.latest
            if reading is None or reading.rules is None or self._clock.monotonic_s() - reading.at_s > age_max_s:
                self._exchange("GET", HELLO_PATH, {}, b"", SHORT_TIMEOUT_S)
                reading = self.latest
        if reading is None:
            raise Busy(f"no {CLOCK_HEADER} in the answers of {self._urls[self._turn]}; is a delivery service there?")
        return reading

    def send_range(self, byte_range: ByteRange, body: bytes) -> RangeAnswer:
        """Deliver a range, `body` compressed with zstd. Returns once it is acknowledged. Busy, Refused."""
        headers = range_headers(byte_range) | {"Content-Encoding": "zstd", "Content-Type": "application/octet-stream"}
        url, response = self._exchange("POST", RANGES_PATH, headers, body, RANGE_TIMEOUT_S)
        try:
            fields = json.loads(response.content)
            end, events, dead_letters = (int(fields[name]) for name in ("end", "events", "dead_letters"))
            reasons = {str(reason): int(count) for reason, count in fields.get("dead_letter_reasons", {}).items()}
            answer = RangeAnswer(end, events, dead_letters, int(fields.get("blanks", 0)), reasons)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            said = response.content[:200].decode(errors="replace")
            raise Refused(f"{url} answered 200 without end, events and dead_letters: {said!r}") from error
        if answer.end != byte_range.end:
            raise Refused(f"{url} acknowledged up to byte {answer.end}, not up to {byte_range.end} as was sent")
        return answer

    def clocks_ms(self) -> dict[str, int]:
        """What each service's clock read when it answered last, by service."""
        return dict(self._clocks_ms)

    def send_report(self, report_to: Callable[[str], HostReport]) -> None:
        """Deliver a host report, made for the service that it goes to. Busy, Refused.

        To a service of a version before `unknown_losses` it goes without them.
        """
        turn = self._turn
        report = report_to(self._urls[turn])
        try:
            self._exchange("POST", REPORTS_PATH, _JSON, report_to_json(report), SHORT_TIMEOUT_S, turn)
        except Refused as error:
            if isinstance(error, NotAllowed) or not any(s.unknown_losses or s.unrepeatable for s in report.sources):
                raise
            body = report_to_json(report, tells_unknown=False)
            self._exchange("POST", REPORTS_PATH, _JSON, body, SHORT_TIMEOUT_S, turn)

    def _exchange(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes, timeout_s: float, turn: int | None = None
    ) -> tuple[str, Answer]:
        """The answer, which is 200, and what was asked."""
        turn = self._turn if turn is None else turn
        url, mine = shown(self._urls[turn]) + path, self._credentials.shown()
        try:
            answer = self._connections.ask(
                self._addresses[turn], method, path, {**headers, **mine.headers}, content, timeout_s=timeout_s, tls=mine.tls
            )
        except PROBLEMS as error:
            self._next_address(turn)
            hint = "; tailer.tls.ca names who is believed" if "certificate verify failed" in str(error) else ""
            raise Busy(f"{url}: {str(error) or type(error).__name__}{hint}") from error
        self._note(answer, self._urls[turn])
        if answer.status == 200:
            return url, answer
        said = f"{url} answered {answer.status}: {_message(answer)}"
        if answer.status == 429 or answer.status >= 500:
            self._next_address(turn)
            raise Busy(said, _retry_after_s(answer))
        if answer.status in (401, 403):
            self._next_address(turn)
            raise NotAllowed(f"{said}. Put a token that covers this host and its types into tailer.token_file")
        raise Refused(said)

    def _next_address(self, turn: int) -> None:
        if self._turn == turn:  # else another thread has moved on already
            self._turn = (turn + 1) % len(self._urls)

    def _note(self, answer: Answer, service: str) -> None:
        text = answer.headers.get(CLOCK_HEADER, "")
        if text.isascii() and text.isdigit() and len(text) <= 19:
            before = self.latest.rules if self.latest else None
            rules = answer.headers.get(RULES_HEADER) or before
            self._clocks_ms[service] = int(text)
            self.latest = Reading(int(text), rules, self._clock.monotonic_s())


def _address(url: str, token_file: Path | None) -> Address:
    """ConfigError if it is none, or would carry the token where others can read it."""
    try:
        address = Address.of(url)
    except ValueError as error:
        raise ConfigError(f"tailer.service_urls = {shown(url)!r}: allowed: http://host:port or https://host:port") from error
    if token_file is not None and not address.is_tls and address.host not in LOOPBACK_HOSTS:
        raise ConfigError(f"tailer.service_urls = {shown(url)!r}: tailer.token_file would go there in clear; use https://")
    return address


def _message(answer: Answer) -> str:
    """What an answer says went wrong; the service's own errors carry a detail and a next step."""
    try:
        problem = json.loads(answer.content)
        return f"{problem['detail']}; {problem['next_step']}"[:300]
    except (ValueError, KeyError, TypeError):
        return answer.content[:300].decode(errors="replace").strip() or answer.reason


def _retry_after_s(answer: Answer) -> float:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), RETRY_AFTER_MAX_S) if text.isascii() and text.isdigit() else 0.0
