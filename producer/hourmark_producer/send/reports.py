"""Host reports, and the time up to which a source is known to be acknowledged.

Host reports: what the closing of buckets knows of this host.

The first report precedes the host's first range: until `arrived` is called, nothing is sent. A
goodbye is the last. Each report has its own number, whether or not it arrived, so that two
different ones never share it.

Since when a source is known to be read and acknowledged to its end. A bucket is called complete on
this word.

What is claimed: every line end that was written to a file of the source before the service's clock
read T is acknowledged, or its bytes are counted as lost. T is a reading received *before* the scan
began; the scan then found every file and its size; and the claim is made only when each was
examined after that, up to that size, and nothing of it is unacknowledged. An attempt is kept until
it succeeds, so that a source that is always busy is caught up again and again.

Clocks of services differ. A claim is made to each by its own clock, and to one that was not heard
before the scan none.
"""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from hourmark.clock import Clock
from hourmark.config.redaction import shown
from hourmark.errors import HourmarkError
from hourmark.records.host_reports import HostReport, SourceReport
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.files.tracked_file import TrackedFile
from hourmark_producer.send.client import ServiceLink


@dataclasses.dataclass(kw_only=True)
class Reporter:
    """Sends one incarnation's reports, one after another."""

    client: ServiceLink
    describe: Callable[[str], tuple[SourceReport, ...]]  # by the clock of this service
    throttle: ConditionLog
    host_id: str
    host_name: str
    arrived: Callable[[], None]
    clock: Clock

    def __post_init__(self) -> None:
        self._incarnation = uuid.uuid4().hex
        self._sequence = 0
        self.arrived_at_ms: int | None = None

    def run(self, every_s: float, stop: threading.Event) -> None:
        """Ask for the service's clock and rules, then report until `stop`, beginning now."""
        while not stop.is_set() and not self._is_heard():
            stop.wait(min(every_s, 1.0))
        while not stop.is_set():
            if self.send():
                self.arrived()
            self._tell_of_clocks()
            stop.wait(every_s)

    def _is_heard(self) -> bool:
        try:
            self.client.fresh()
        except HourmarkError as error:
            self.throttle.warn(
                "hello", f"no delivery service yet: {error}; asked again until there is one"
            )
            return False
        self.throttle.resolve("hello")
        return True

    def _tell_of_clocks(self) -> None:
        troubles = self.client.clock_troubles()
        for service in self.client.services.known():
            key = f"clock {service.name}"
            if trouble := troubles.get(service.name):
                self.throttle.warn(
                    key,
                    f"{shown(service.name)}: {trouble}; no range is given its time. Set it right",
                )
            else:
                self.throttle.resolve(key)

    def send(self, *, goodbye: bool = False) -> bool:
        """One report; whether it arrived."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        try:
            self.client.send_report(
                lambda service: self._report(service, sequence, goodbye=goodbye)
            )
        except HourmarkError as error:
            self.throttle.warn("report", f"a host report did not arrive: {error}; the next follows")
            return False
        self.throttle.resolve("report")
        self.arrived_at_ms = self.clock.now_ms()
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
            sources=self.describe(service),
        )


class Target(NamedTuple):
    """How far one file must be acknowledged."""

    file: TrackedFile
    generation: int
    size: int
    due: int

    @classmethod
    def of(cls, file: TrackedFile) -> Target:
        """Up to what the scan saw of it."""
        return cls(file, file.progress.position.generation, file.observed.size, file.due)

    def is_met(self) -> bool:
        """Whether all up to there is acknowledged, an unterminated last line excepted."""
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

    def is_void(self) -> bool:
        """Whether it can never be met: the file was truncated since."""
        file = self.file
        return (
            file.progress.position.generation != self.generation
            or 0 <= file.observed.size < self.size
        )


class CaughtUp:
    """One source's claim. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_ms: dict[str, int] = {}  # by service
        self._attempt: tuple[Mapping[str, int], list[Target], float] | None = None
        self._at_s: float | None = None

    def begin(
        self, readings_ms: Mapping[str, int], targets: Iterable[Target], at_s: float = 0.0
    ) -> None:
        """After a full scan that began after the clocks of services read so, by service, and this
        one `at_s`.
        """
        with self._lock:
            self._settle()
            if self._attempt is None or any(target.is_void() for target in self._attempt[1]):
                self._attempt = (dict(readings_ms), list(targets), at_s)
                self._settle()

    def at_ms(self, service: str) -> int | None:
        """Since when, by the clock of this service; None: never yet."""
        with self._lock:
            self._settle()
            return self._at_ms.get(service)

    def at_s(self) -> float | None:
        """Since when, by this host's monotonic clock; None: never yet."""
        with self._lock:
            self._settle()
            return self._at_s

    def is_made(self, *, since_s: float | None = None) -> bool:
        """Whether it was ever caught up; or since this moment, monotonic."""
        with self._lock:
            self._settle()
            return self._at_s is not None and (since_s is None or self._at_s >= since_s)

    def _settle(self) -> None:
        if self._attempt is None:
            return
        readings_ms, targets, at_s = self._attempt
        targets[:] = [target for target in targets if not target.is_met()]
        if not targets:
            self._at_ms.update(readings_ms)
            self._at_s = at_s
            self._attempt = None
