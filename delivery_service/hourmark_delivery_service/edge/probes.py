"""Operational endpoints: hello, health, readiness, metrics, and the OpenAPI document."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from hourmark.kafka.topic_names import CONTROL, events_topic
from hourmark_delivery_service.edge.openapi import openapi_document
from hourmark_delivery_service.edge.responses import json_response
from hourmark_delivery_service.errors import ServiceUnavailable
from hourmark_delivery_service.parsing import native
from hourmark_delivery_service.work.duplicates import RequestCoalescer
from hourmark_delivery_service.work.peer import peer_of
from hourmark_delivery_service.work.service import DeliveryService, clock_problem
from hourmark_delivery_service.work.turns import Job

_ELSEWHERE: Final = ["details are shown only to requests from the service's own machine"]
_ANSWER_KEPT_S: Final = 1.0  # readiness is asked of Kafka at most that often


class Probes:
    """HTTP endpoints for monitoring and discovery: hello, health, readiness, metrics and OpenAPI.

    The endpoints respond even if the service is overloaded. Only readiness depends on Kafka.

    Args:
        service: Service whose state the endpoints report.
    """

    def __init__(self, service: DeliveryService) -> None:
        self._service = service
        self._problems: tuple[float, tuple[list[str], list[str]]] | None = None
        self._asking = asyncio.Lock()
        self._expositions: RequestCoalescer[bytes] = RequestCoalescer()

    async def hello(self, _: Request) -> Response:
        """Respond with the current time and the rules revision that the client should use.

        The JSON response contains `clock_ms` in Unix milliseconds, and `rules`, the id of the
        latest rules revision (version of the declared event types and sources).

        Raises:
            ServiceUnavailable: If no usable revision has been read from Kafka, or the clock is not
                between the years 2000 and 8999.
        """
        latest, now_ms = self._service.rules.latest, self._service.clock.now_ms()
        if latest is None or clock_problem(now_ms):
            raise ServiceUnavailable("not_ready", "; ".join(self._service.not_ready_reasons()))
        return json_response({"clock_ms": now_ms, "rules": latest.id})

    async def alive(self, _: Request) -> Response:
        """Respond to a liveness probe with status 200 and the JSON body `{"alive": true}`.

        The response shows only that the process handles HTTP requests. It does not depend on Kafka.
        Use `ready` to find out whether the service can accept data.
        """
        return json_response({"alive": True})

    async def ready(self, http: Request) -> Response:
        """Respond with 200 if the service can accept data now, otherwise with 503.

        The JSON response has the members `ready`, `reasons` (why the service is not ready),
        `warnings` (problems that do not affect readiness) and `native_pass` (whether the compiled
        parser is used). An unavailable topic of an event type is a warning, because data of other
        types is accepted. It is a reason if the topics of all event types are unavailable.

        Reasons and warnings contain names of brokers and topics. If tokens are required, they are
        hidden from requests of other machines.

        Args:
            http: Request whose client address is checked.
        """
        queue_reasons, queue_warnings = await self._queue_problems()
        reasons = self._service.not_ready_reasons() + queue_reasons
        warnings = self._service.access.warnings() + queue_warnings
        answer = {
            "ready": not reasons,
            "reasons": reasons,
            "warnings": warnings,
            "native_pass": native.MODULE is not None,
        }
        if self._service.access.required and not _of_this_machine(
            http
        ):  # they name brokers and topics
            answer |= {
                "reasons": _ELSEWHERE[: len(reasons)],
                "warnings": _ELSEWHERE[: len(warnings)],
            }
        return (
            json_response(answer, 503, {"Retry-After": "1"}) if reasons else json_response(answer)
        )

    async def metrics(self, http: Request) -> Response:
        """Respond with status 200 and all metrics in the Prometheus text format.

        Concurrent requests share one result, which is rendered only once.

        Args:
            http: Request whose client waits for the result.
        """
        text = await self._expositions.join(
            "metrics", b"", lambda _: self._exposition(), peer_of(http)
        )
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, _: Request) -> Response:
        """Respond with status 200 and the OpenAPI 3.1 document of the HTTP API as JSON."""
        return json_response(openapi_document(self._service.settings))

    async def _exposition(self) -> bytes:
        return await self._service.executor.run_in_loop(Job(), self._service.metrics.exposition)

    async def _queue_problems(self) -> tuple[list[str], list[str]]:
        # Return the reasons why the service is not ready, and warnings.
        async with self._asking:
            now_s = self._service.clock.monotonic_s()
            if self._problems is None or now_s - self._problems[0] >= _ANSWER_KEPT_S:
                self._problems = (self._service.clock.monotonic_s(), await self._ask_queue())
            return self._problems[1]

    async def _ask_queue(self) -> tuple[list[str], list[str]]:
        queue, latest = self._service.queue, self._service.rules.latest
        topics = [events_topic(name) for name in sorted(latest.types)] if latest is not None else []
        reasons = await queue.problems(CONTROL)
        of_topics = await queue.topic_problems(topics)
        if topics and len(of_topics) == len(topics):
            return [*reasons, *of_topics.values()], []
        return reasons, [
            f"{problem}; other event types are accepted" for problem in of_topics.values()
        ]


def _of_this_machine(http: Request) -> bool:
    return http.client is not None and ip_address(http.client.host).is_loopback
