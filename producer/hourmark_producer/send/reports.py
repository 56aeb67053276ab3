"""Host reports, and the time up to which a source is fully acknowledged.

A host report tells the closing of buckets how far this host is. The first report precedes the first
range of the host, and a report with `goodbye` is the last. Every report has its own sequence
number, whether or not it was delivered, so two different reports never share one.

A claim for a source states: every line that ended in one of its files before the service's clock
read T is acknowledged, or its bytes are counted as lost. T is a reading that was received before a
full scan began. The scan then found every file with its size, and the claim holds once every file
was examined after the scan, up to that size, and no range up to there is unacknowledged. An attempt
is kept until it succeeds, so a source that is always busy is caught up again and again. Buckets are
called complete because of these claims.

Clocks of services differ, so each service receives the claim by its own clock. A service whose
clock was not read before the scan receives none.
"""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from hourmark.clock import Clock
from hourmark.config.redaction import redact_setting
from hourmark.errors import HourmarkError
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX, HostReport, SourceReport
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.files.tracked_file import TrackedFile
from hourmark_producer.send.client import DeliveryServiceClient, RequestUnauthorized


@dataclasses.dataclass(kw_only=True)
class HostReporter:
    """Sends the host reports of one run of the tailer to the delivery services.

    A host report states, for each source, the time up to which services acknowledged all lines of
    this host.

    Attributes:
        client: Client for the delivery services.
        source_reports: Function that returns the state of all sources. Its argument is the name of
            the service whose clock is used.
        throttle: Logs each lasting problem once when it begins and once when it ends.
        host_id: Id of this tailer.
        host_name: Name of this host.
        on_delivered: Called by `run` after each delivered report.
        clock: Clock of this host.
        delivered_at_ms: When a report was last delivered, in Unix milliseconds; None for never.
    """

    client: DeliveryServiceClient
    source_reports: Callable[[str], tuple[SourceReport, ...]]  # by the clock of this service
    throttle: ConditionLog
    host_id: str
    host_name: str
    on_delivered: Callable[[], None]
    clock: Clock

    def __post_init__(self) -> None:
        self._incarnation = uuid.uuid4().hex
        self._sequence = 0
        self.delivered_at_ms: int | None = None

    def run(self, every_s: float, stop: threading.Event) -> None:
        """Send reports at regular intervals until an event is set. This method blocks.

        It first waits until a service responds. Failed deliveries are logged and do not end the
        loop.

        Args:
            every_s: Seconds between two reports. The first report is sent immediately.
            stop: Event that ends the loop.
        """
        while not stop.is_set() and not self._has_service():
            stop.wait(min(every_s, 1.0))
        while not stop.is_set():
            if self.send():
                self.on_delivered()
            self._log_clock_errors()
            stop.wait(every_s)

    def _has_service(self) -> bool:
        try:
            self.client.current_reading()
        except HourmarkError as error:
            self.throttle.warn(
                "hello", f"no delivery service is available: {error}; retrying until one responds"
            )
            return False
        self.throttle.resolve("hello")
        return True

    def _log_clock_errors(self) -> None:
        troubles = self.client.clock_errors()
        for service in self.client.services.endpoints():
            key = f"clock {service.name}"
            if trouble := troubles.get(service.name):
                self.throttle.warn(
                    key,
                    f"{redact_setting(service.name)}: {trouble}; ranges are not stamped with its "
                    "time. Correct its clock",
                )
            else:
                self.throttle.resolve(key)

    def send(self, *, goodbye: bool = False) -> bool:
        """Send one host report. Failures are logged and not raised.

        Args:
            goodbye: Whether to state that this host sends no more data. Hourly buckets are then
                closed without waiting for it.

        Returns:
            Whether a service accepted the report.
        """
        sequence, self._sequence = self._sequence, self._sequence + 1
        try:
            self.client.send_report(
                lambda service: self._report(service, sequence, goodbye=goodbye)
            )
        except HourmarkError as error:
            self.throttle.warn(
                error.condition_key if isinstance(error, RequestUnauthorized) else "report",
                f"a host report was not delivered: {error}; the next one follows on schedule",
            )
            return False
        self.throttle.resolve("report")
        self.delivered_at_ms = self.clock.now_ms()
        return True

    def _report(self, service: str, sequence: int, *, goodbye: bool) -> HostReport:
        return HostReport(
            host_id=self.host_id,
            host_name=self.host_name,
            kind="tailer",
            incarnation=self._incarnation,
            sequence=sequence,
            received_at_ms=0,  # the service's to say
            goodbye=goodbye,
            sources=self.source_reports(service),
        )


class AcknowledgmentTarget(NamedTuple):
    """The size up to which a file must be acknowledged before its source counts as caught up.

    Attributes:
        file: The tracked file.
        generation: Generation of the file when it was scanned. A truncation begins a new one.
        size: Content size that the scan observed, in bytes.
        due: Number of the latest scan that detected a change of the file.
    """

    file: TrackedFile
    generation: int
    size: int
    due: int

    @classmethod
    def from_file(cls, file: TrackedFile) -> AcknowledgmentTarget:
        """Create a target from the content size that the latest scan of a file observed.

        Args:
            file: The tracked file.
        """
        return cls(file, file.progress.position.generation, file.observed.size, file.due)

    def is_met(self) -> bool:
        """Return whether services acknowledged all bytes of the file up to the target size.

        An unterminated last line is ignored. If the file no longer exists, its unread bytes are
        recorded as lost, and the target is met once none of its ranges is in flight.
        """
        progress = self.file.progress  # one consistent moment
        sent = progress.in_flight
        if self.file.is_gone:
            return not sent  # what was not read of it is counted as lost
        if progress.position.generation != self.generation or progress.examined_scan < self.due:
            return False
        if sent:  # a busy file always has ranges on their way; they may all lie behind the target
            return all(
                one.range.generation == self.generation and one.range.start >= self.size
                for one in sent
            )
        return progress.quiet_to >= self.size

    def is_unreachable(self) -> bool:
        """Return whether the target cannot be met because the file was truncated after the scan."""
        file = self.file
        return (
            file.progress.position.generation != self.generation
            or 0 <= file.observed.size < self.size
        )


class CaughtUpTime:
    """The time up to which services acknowledged all lines of one source. Thread-safe.

    Each full scan starts an attempt to move this time forward. The attempt succeeds once all files
    that the scan found are acknowledged up to their sizes. The start of that scan is then the new
    time. It is recorded by the clock of each service and by this host's monotonic clock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_ms: dict[str, int] = {}  # by service
        self._attempt: tuple[Mapping[str, int], list[AcknowledgmentTarget], float] | None = None
        self._at_s: float | None = None

    def start_attempt(
        self,
        readings_ms: Mapping[str, int],
        targets: Iterable[AcknowledgmentTarget],
        at_s: float = 0.0,
    ) -> None:
        """Start an attempt to move the acknowledged time forward. Call it after each full scan.

        The attempt succeeds once services have acknowledged all target files up to the sizes that
        the scan found. The acknowledged time is then the start of the scan. A pending attempt
        continues, and the new one is ignored. If the pending attempt cannot succeed because one of
        its files was truncated, the new attempt replaces it.

        Args:
            readings_ms: Maps each service name to the time of its clock before the scan, in Unix
                milliseconds.
            targets: The files that the scan found, with their sizes.
            at_s: Time before the scan, in seconds of this host's monotonic clock.
        """
        with self._lock:
            self._complete_attempt()
            if self._attempt is None or any(target.is_unreachable() for target in self._attempt[1]):
                self._attempt = (dict(readings_ms), list(targets), at_s)
                self._complete_attempt()

    def service_time_ms(self, service: str, clock_ms: int | None = None) -> int | None:
        """Return the time up to which the source is acknowledged, by the clock of one service.

        A time far ahead of `clock_ms` was measured before the clock was set back. It is discarded,
        because new lines would appear to precede it.

        Args:
            service: Name of the service.
            clock_ms: Latest reading of the service's clock, in Unix milliseconds; None if unknown.

        Returns:
            Unix milliseconds; None before the first successful attempt with this clock, and before
            the next one after the clock was set back.
        """
        with self._lock:
            self._complete_attempt()
            at_ms = self._at_ms.get(service)
            if at_ms is None or clock_ms is None or at_ms - clock_ms <= CLOCKS_APART_MS_MAX:
                return at_ms
            del self._at_ms[service]
            return None

    def monotonic_time_s(self) -> float | None:
        """Return the time up to which the source is acknowledged, by this host's monotonic clock.

        Returns:
            Seconds; None if no attempt has succeeded yet.
        """
        with self._lock:
            self._complete_attempt()
            return self._at_s

    def is_caught_up(self, *, since_s: float | None = None) -> bool:
        """Return whether services acknowledged all lines that existed at a given time.

        Args:
            since_s: The time, in seconds of this host's monotonic clock. If None, the result is
                whether all lines that existed at the start of any scan in this run were
                acknowledged.
        """
        with self._lock:
            self._complete_attempt()
            return self._at_s is not None and (since_s is None or self._at_s >= since_s)

    def _complete_attempt(self) -> None:
        if self._attempt is None:
            return
        readings_ms, targets, at_s = self._attempt
        targets[:] = [target for target in targets if not target.is_met()]
        if not targets:
            self._at_ms.update(readings_ms)
            self._at_s = at_s
            self._attempt = None


class CaughtUpTimes:
    """The times up to which services acknowledged all lines of each source. Thread-safe.

    Args:
        sources: Names of all configured sources.

    Attributes:
        sources: Names of all configured sources.
    """

    def __init__(self, sources: Iterable[str]) -> None:
        self._claims = {source: CaughtUpTime() for source in sources}
        self.sources = tuple(self._claims)

    def start_attempts(
        self,
        readings_ms: Mapping[str, int],
        complete: Collection[str],
        active_files: Iterable[TrackedFile],
        at_s: float,
    ) -> None:
        """Start attempts to move the acknowledged times of completely scanned sources forward.

        Args:
            readings_ms: Maps each service name to the time of its clock before the scan, in Unix
                milliseconds. If it is empty, no attempt is started.
            complete: The sources that were scanned completely.
            active_files: The files that are not completely acknowledged.
            at_s: Time before the scan, in seconds of this host's monotonic clock.
        """
        if not readings_ms:
            return
        targets: dict[str, list[AcknowledgmentTarget]] = {source: [] for source in complete}
        for file in active_files:  # all other files are fully acknowledged
            if file.place.source in targets:
                targets[file.place.source].append(AcknowledgmentTarget.from_file(file))
        for source, those in targets.items():
            self._claims[source].start_attempt(readings_ms, those, at_s)

    def service_times_ms(self, service: str, clock_ms: int | None = None) -> dict[str, int | None]:
        """Return the time up to which each source is acknowledged, by the clock of one service.

        Args:
            service: Name of the service.
            clock_ms: Latest reading of the service's clock, in Unix milliseconds; None if unknown.

        Returns:
            Maps each source to a time in Unix milliseconds; None before the first successful
            attempt with this clock, and before the next one after the clock was set back.
        """
        return {
            source: claim.service_time_ms(service, clock_ms)
            for source, claim in self._claims.items()
        }

    def monotonic_times_s(self) -> dict[str, float | None]:
        """Return the time up to which each source is acknowledged, by this host's monotonic clock.

        Returns:
            Maps each source to a time in seconds; None if no attempt has succeeded yet.
        """
        return {source: claim.monotonic_time_s() for source, claim in self._claims.items()}

    def are_caught_up(self, *, since_s: float | None = None) -> bool:
        """Return whether all lines of all sources that existed at a given time are acknowledged.

        Args:
            since_s: The time, in seconds of this host's monotonic clock. If None, the method
                returns whether each source has had a successful attempt.
        """
        return all(claim.is_caught_up(since_s=since_s) for claim in self._claims.values())
