"""`POST /v1/reports`: accepts host reports of tailers."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from hourmark.records.wire import report_from_json
from hourmark_delivery_service.access.grants import Grant, request_grant
from hourmark_delivery_service.edge.responses import json_response
from hourmark_delivery_service.errors import QueueError, ServiceUnavailable, bad_request
from hourmark_delivery_service.work.service import DeliveryService, clock_problem

REPORT_BYTES_MAX: Final = 1 << 20


class ReportsEndpoint:
    """HTTP endpoint that stores the host reports of tailers in Kafka.

    A host report states the time up to which a host has sent all its data. The service adds the
    time of receipt.

    Args:
        service: Service that appends the reports to its Kafka queue.
    """

    def __init__(self, service: DeliveryService) -> None:
        self._service = service

    async def post(self, http: Request) -> Response:
        """Store a host report and respond with 200 once all in-sync replicas have it.

        A host report states the time up to which a host has sent all its data. The JSON response
        contains the time of receipt as `received_at_ms`, in Unix milliseconds.

        Args:
            http: Request whose body is the report as JSON, at most 1 MiB.

        Raises:
            ServiceError: If the report is rejected or Kafka is unavailable. The error becomes the
                HTTP response, and nothing is acknowledged.
        """
        service = self._service
        if trouble := clock_problem(service.clock.now_ms()):
            raise ServiceUnavailable("not_ready", trouble)
        with service.inflight.track() as request:
            return await self._keep(
                await service.bodies.read(http, request, REPORT_BYTES_MAX), request_grant(http)
            )

    async def _keep(self, body: bytes, grant: Grant) -> Response:
        with bad_request("report", "send a report as described in docs/reference/http-ranges.md"):
            sent = report_from_json(body)
            if len(sent.host_id) != 32:
                raise ValueError("host_id must be 32 hex digits")
            if any(
                "\0" in text
                for text in (
                    sent.host_id,
                    sent.host_name,
                    sent.incarnation,
                    *(s.source for s in sent.sources),
                )
            ):
                raise ValueError("a string contains a NUL (\\u0000)")
        grant.check_report(sent)
        report = sent.stamped(self._service.clock.now_ms())
        try:
            await self._service.append_report(report)
        except QueueError as error:
            raise ServiceUnavailable("queue", f"the report was not stored: {error}") from error
        return json_response({"received_at_ms": report.received_at_ms})
