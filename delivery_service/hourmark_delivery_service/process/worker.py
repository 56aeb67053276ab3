"""One of the processes that share a port: a service that tells its claim to its supervisor instead
of Kafka.
"""

from __future__ import annotations

import asyncio
from typing import Final

from hourmark_delivery_service.process.worker_status import WorkerStatus, WorkerStatusTable
from hourmark_delivery_service.work.service import DeliveryService

_TELL_S: Final = 0.1


class WorkerStatusReporter:
    """Implements `Claimant` over the shared claims."""

    def __init__(
        self, service: DeliveryService, status_table: WorkerStatusTable, slot: int
    ) -> None:
        self._service = service
        self._claims = status_table
        self._slot = slot
        self._told = 0
        service.inflight.set_start_min(status_table.get(slot).oldest_ms)

    async def run(self) -> None:
        """Tell the claim often: the loop that hangs tells nothing, which holds the
        service's claim.
        """
        while True:
            self._tell()
            self._service.first_report_sent = self._claims.reported
            await asyncio.sleep(_TELL_S)

    async def send_goodbye(self) -> None:
        """Say what is left: the supervisor says goodbye for all, if nothing is."""
        self._tell()

    def _tell(self) -> None:
        inflight = self._service.inflight
        self._told += 1
        self._claims.update(
            self._slot,
            WorkerStatus(inflight.oldest_ms(), inflight.bytes, inflight.requests, self._told),
        )
