"""A worker process: a service that reports its progress to the supervisor instead of to Kafka."""

from __future__ import annotations

import asyncio
from typing import Final

from hourmark_delivery_service.process.worker_status import WorkerStatus, WorkerStatusTable
from hourmark_delivery_service.work.service import DeliveryService

_PUBLISH_S: Final = 0.1


class WorkerStatusReporter:
    """Writes the status of one worker process to a table in shared memory.

    The supervisor reads the table, and reports to Kafka for all workers. Implements
    `ProgressReporter`.

    Args:
        service: Service of this worker.
        status_table: Table in shared memory.
        slot: Row of this worker in the table.
    """

    def __init__(
        self, service: DeliveryService, status_table: WorkerStatusTable, slot: int
    ) -> None:
        self._service = service
        self._claims = status_table
        self._slot = slot
        self._heartbeats = 0
        service.inflight.set_start_min(status_table.get(slot).oldest_ms)

    async def run(self) -> None:
        """Write the worker's status to the table ten times a second until the task is cancelled.

        The worker accepts events once the supervisor has sent its first report to Kafka. If the
        worker's event loop hangs, its status does not change. The supervisor therefore does not
        report requests of this worker as answered.
        """
        while True:
            self._publish()
            self._service.first_report_sent = self._claims.reported
            await asyncio.sleep(_PUBLISH_S)

    async def send_goodbye(self) -> None:
        """Write the final status of this worker to the table.

        Nothing is sent to Kafka. The supervisor sends the final report for all workers.
        """
        self._publish()

    def _publish(self) -> None:
        inflight = self._service.inflight
        self._heartbeats += 1
        self._claims.update(
            self._slot,
            WorkerStatus(inflight.oldest_ms(), inflight.bytes, inflight.requests, self._heartbeats),
        )
