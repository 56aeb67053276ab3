"""The identity of a service instance and its host reports.

The identity is a host id that survives restarts, with a lock so that no two processes share it.

A host report states the time up to which all API requests are acknowledged. Without these reports,
an hour could be closed while a request of that hour is still in flight. The time `caught_up_at` is the
start of the oldest request in flight, or the current time. The first report is in the queue before
the first event is accepted, and a final report follows after the service has drained.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
import uuid
from pathlib import Path
from typing import IO, Final, Protocol

from hourmark.records.host_reports import API_SOURCE, HostReport, SourceReport
from hourmark.records.ranges import new_host_id
from hourmark.state_folder import StateFolder
from hourmark_delivery_service.errors import QueueError, ServiceUnavailable
from hourmark_delivery_service.work.service import DeliveryService


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """The identity of a delivery service in its host reports.

    Attributes:
        host_id: Id of the service instance, which survives restarts.
        host_name: Name of the machine.
        incarnation: Random id, new at each start of the instance.
        lock: Lock file that the process holds until it exits.
    """

    host_id: str
    host_name: str
    incarnation: str
    lock: IO[bytes] | None = None


def take_identity(state_dir: Path) -> ServiceIdentity:
    """Lock a state folder for this process, and return the identity that is stored in it.

    The identity is created on first use. While the process runs, no other process can use it.

    Args:
        state_dir: State folder of the service.

    Raises:
        ConfigError: If another process holds the lock, or the identity cannot be stored.
    """
    folder = StateFolder(state_dir, "service")
    lock = folder.lock()
    try:
        host_id = folder.host_id() or folder.save_host_id(new_host_id())
    except BaseException:
        lock.close()
        raise
    return ServiceIdentity(
        host_id, socket.gethostname() or f"pid-{os.getpid()}", uuid.uuid4().hex, lock
    )


_LOG = logging.getLogger(__name__)


_GOODBYE_S: Final = 10.0


class InflightSource(Protocol):
    """Interface to the state of the requests in flight, for host reports.

    The state covers either one process (`InflightRequests`) or all worker processes of a service
    (`WorkerStatusTable`).
    """

    @property
    def bytes(self) -> int:
        """Return the memory that is reserved for all requests in flight, in bytes.

        Returns 0 if no request is in flight.
        """
        ...

    @property
    def requests(self) -> int:
        """Return the number of requests that have been received but not yet answered.

        The final report of the service is sent only if this number is 0.
        """
        ...

    def oldest_ms(self) -> int:
        """Return the time up to which all requests have been answered, in Unix milliseconds.

        All requests that were received before this time have been answered. The value decreases
        only if the clock was set back by more than `CLOCKS_APART_MS_MAX`.
        """
        ...


class ServiceReporter:
    """Sends a host report of the delivery service to the queue every `report_seconds`.

    A host report states the time up to which the service has answered all requests. An hourly
    bucket of events is closed only after such a report. Implements `ProgressReporter`.

    Args:
        service: Service that appends the reports to its queue.
        identity: Identity of the service in its reports.
        inflight: Requests in flight, which determine the reported time.
    """

    def __init__(
        self, service: DeliveryService, identity: ServiceIdentity, inflight: InflightSource
    ) -> None:
        self._service = service
        self._identity = identity
        self._claims = inflight
        self._sequence = 0

    async def run(self) -> None:
        """Send host reports every `report_seconds` until the task is cancelled.

        The service accepts events once the first report has succeeded. A failure is logged, and the
        next report is sent at its usual time. No hour of events is closed until a report succeeds.
        """
        while True:
            try:
                await self.report()
                self._service.first_report_sent = True
            except (QueueError, ServiceUnavailable) as error:
                _LOG.warning(
                    "the host report was not stored in Kafka; hours stay open until one is: %s",
                    error,
                )
            await asyncio.sleep(self._service.settings.report_seconds)

    async def send_goodbye(self) -> None:
        """Send the final host report, which states that the service has answered all requests.

        No report is sent if none was sent before, or if a request is still unanswered. The method
        waits at most 10 seconds, and logs failures. Without a final report, hours of events are
        closed only at their deadline while the service is stopped.
        """
        if not self._service.first_report_sent or self._claims.requests:
            return
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self.report(goodbye=True)
        except (QueueError, ServiceUnavailable, TimeoutError) as error:
            _LOG.warning(
                "the final host report was not stored in Kafka; hours wait until their deadline: %s",
                error,
            )

    async def report(self, *, goodbye: bool = False) -> None:
        """Send one host report with the current state of the requests in flight.

        A host report states the time up to which the service has answered all requests.

        Args:
            goodbye: Whether this is the final report before a shutdown.

        Raises:
            QueueError: If the queue did not store the report. No retry is needed, because the next
                report supersedes it.
            ServiceUnavailable: If the schema id of host reports is not known yet.
        """
        service = self._service
        caught_up_ms = self._claims.oldest_ms()
        report = HostReport(
            host_id=self._identity.host_id,
            host_name=self._identity.host_name,
            kind="service",
            incarnation=self._identity.incarnation,
            sequence=self._sequence,
            received_at_ms=service.clock.now_ms(),
            goodbye=goodbye,
            sources=(SourceReport(API_SOURCE, caught_up_ms, self._claims.bytes, 0),),
        )
        self._sequence += 1
        await service.append_report(report)
