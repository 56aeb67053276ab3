"""The service's own host reports: how far API traffic is acknowledged. Without them an hour could close over a request under way.

`caught_up_at` is the start of the oldest request under way, or now: what began before it is answered. The first report is in
the queue before the first event is taken; a goodbye follows the drain.
"""

from __future__ import annotations

import asyncio
import logging

from hourmark.host_reports import API_SOURCE, HostReport, SourceReport
from hourmark_delivery_service.errors import NotNow, QueueError
from hourmark_delivery_service.identity import Identity
from hourmark_delivery_service.service import Service

_LOG = logging.getLogger(__name__)


class Reporter:
    """Appends a report every `report_seconds`, one at a time."""

    def __init__(self, service: Service, identity: Identity) -> None:
        self._service = service
        self._identity = identity
        self._sequence = 0

    async def run(self) -> None:
        """Report until cancelled. While the queue is away reports fail and hours wait, as they must."""
        while True:
            try:
                await self.report()
                self._service.reported = True
            except (QueueError, NotNow) as error:
                _LOG.warning("the own report did not get into Kafka: %s", error)
            await asyncio.sleep(self._service.settings.report_seconds)

    async def report(self, *, goodbye: bool = False) -> None:
        """Append one report. Raises QueueError; then the next one says the same or more."""
        service = self._service
        caught_up_ms = service.inflight.oldest_ms()
        report = HostReport(
            host_id=self._identity.host_id,
            host_name=self._identity.host_name,
            kind="service",
            incarnation=self._identity.incarnation,
            sequence=self._sequence,
            received_at_ms=service.clock.now_ms(),
            goodbye=goodbye,
            sources=(SourceReport(API_SOURCE, caught_up_ms, service.inflight.bytes, 0),),
        )
        self._sequence += 1
        await service.append_report(report)
