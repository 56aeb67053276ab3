"""The identity of a service instance and its host reports.

The identity is a host id that survives restarts, with a lock so that no two processes share it.

A host report states up to which time all API requests are acknowledged. Without these reports an
hour could close although a request of that hour is still in flight. The time `caught_up_at` is the
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
    """The identity of a service instance in its host reports.

    Attributes:
        host_id: Id of the instance, which survives restarts.
        host_name: Name of the machine.
        incarnation: Random id of this start of the instance.
        lock: Lock file that the process holds until it exits.
    """

    host_id: str
    host_name: str
    incarnation: str
    lock: IO[bytes] | None = None


def take_identity(state_dir: Path) -> ServiceIdentity:
    """Return the identity of the instance in this state folder, creating it on first use.

    The returned object holds a lock, so that no other process can use the same identity.

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
    """Requests in flight, of a single service process or of all its workers."""

    @property
    def bytes(self) -> int:
        """Return the memory of the requests in flight in bytes."""
        ...

    @property
    def requests(self) -> int:
        """Return the number of requests that are not answered."""
        ...

    def oldest_ms(self) -> int:
        """Return the time before which all requests are answered, in Unix milliseconds.

        The value never decreases.
        """
        ...


class ServiceReporter:
    """Sends the host reports of a service to the queue every `report_seconds`.

    Implements `ProgressReporter`.
    """

    def __init__(
        self, service: DeliveryService, identity: ServiceIdentity, inflight: InflightSource
    ) -> None:
        self._service = service
        self._identity = identity
        self._claims = inflight
        self._sequence = 0

    async def run(self) -> None:
        """Send reports periodically until the task is cancelled.

        Failed reports are logged. Hours stay open until a report succeeds.
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
        """Send the final report, if an earlier report was sent and no request is left unanswered.

        Waits at most 10 seconds; failures are logged. Without a final report, hours stay open until
        their deadline.
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
        """Send one host report.

        Args:
            goodbye: Whether this is the final report.

        Raises:
            QueueError: If the queue did not store the report. The next report covers at least the
                same time.
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
