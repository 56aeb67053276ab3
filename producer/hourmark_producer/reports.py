"""Host reports: what the closing of buckets knows of this host.

The first report precedes the host's first range: until `arrived` is called, nothing is sent. A goodbye is the last.
Each report has its own number, whether or not it arrived, so that two different ones never share it.
"""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable

from hourmark.clock import Clock
from hourmark.errors import HourmarkError
from hourmark.hidden import shown
from hourmark.host_reports import HostReport, SourceReport
from hourmark_producer.service_client import ServiceLink
from hourmark_producer.throttle import Throttle


@dataclasses.dataclass(kw_only=True)
class Reporter:
    """Sends one incarnation's reports, one after another."""

    client: ServiceLink
    describe: Callable[[str], tuple[SourceReport, ...]]  # by the clock of this service
    throttle: Throttle
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
            self.throttle.warn("hello", f"no delivery service yet: {error}; asked again until there is one")
            return False
        self.throttle.over("hello")
        return True

    def _tell_of_clocks(self) -> None:
        troubles = self.client.clock_troubles()
        for service in self.client.services.known():
            key = f"clock {service.name}"
            if trouble := troubles.get(service.name):
                self.throttle.warn(key, f"{shown(service.name)}: {trouble}; no range is given its time. Set it right")
            else:
                self.throttle.over(key)

    def send(self, *, goodbye: bool = False) -> bool:
        """One report; whether it arrived."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        try:
            self.client.send_report(lambda service: self._report(service, sequence, goodbye=goodbye))
        except HourmarkError as error:
            self.throttle.warn("report", f"a host report did not arrive: {error}; the next follows")
            return False
        self.throttle.over("report")
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
