"""The identity of a service instance, and its own host reports.

Who this service instance is: a host id that survives restarts, and a lock so that no two processes
share it.

The service's own host reports: how far API traffic is acknowledged. Without them an hour could
close over a request under way.

`caught_up_at` is the start of the oldest request under way, or now: what began before it is
answered. The first report is in the queue before the first event is taken; a goodbye follows the
drain.
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
    """`incarnation` is new at every start; `lock` is held as long as the process lives."""

    host_id: str
    host_name: str
    incarnation: str
    lock: IO[bytes] | None = None


def take_identity(state_dir: Path) -> ServiceIdentity:
    """The instance's identity, minted once per `state_dir`.

    ConfigError if another process has it, or it cannot be kept.
    """
    folder = StateFolder(state_dir, "service")
    lock = folder.lock()
    try:
        host_id = folder.host_id() or folder.keep_host_id(new_host_id())
    except BaseException:
        lock.close()
        raise
    return ServiceIdentity(
        host_id, socket.gethostname() or f"pid-{os.getpid()}", uuid.uuid4().hex, lock
    )


_LOG = logging.getLogger(__name__)


_GOODBYE_S: Final = 10.0


class InflightSource(Protocol):
    """What is reported: of one service, or of all workers of one."""

    @property
    def bytes(self) -> int:
        """Of requests under way."""
        ...

    @property
    def requests(self) -> int:
        """How many are not answered."""
        ...

    def oldest_ms(self) -> int:
        """All that began earlier is answered. Never less than it was."""
        ...


class ServiceReporter:
    """Implements `hourmark_delivery_service.process.lifecycle.ProgressReporter`: appends a report every
    `report_seconds`, one at a time.
    """

    def __init__(
        self, service: DeliveryService, identity: ServiceIdentity, inflight: InflightSource
    ) -> None:
        self._service = service
        self._identity = identity
        self._claims = inflight
        self._sequence = 0

    async def run(self) -> None:
        """Report until cancelled.

        While the queue is away reports fail and hours wait, as they must.
        """
        while True:
            try:
                await self.report()
                self._service.first_report_sent = True
            except (QueueError, ServiceUnavailable) as error:
                _LOG.warning("the own report did not get into Kafka: %s", error)
            await asyncio.sleep(self._service.settings.report_seconds)

    async def send_goodbye(self) -> None:
        """Only after everything under way is answered; and without it, hours wait until their
        deadline.
        """
        if not self._service.first_report_sent or self._claims.requests:
            return
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self.report(goodbye=True)
        except (QueueError, ServiceUnavailable, TimeoutError) as error:
            _LOG.warning("no goodbye could be said: %s", error)

    async def report(self, *, goodbye: bool = False) -> None:
        """Append one report. Raises QueueError; then the next one says the same or more."""
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
