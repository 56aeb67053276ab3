"""HTTP responses: JSON, problems (RFC 9457), and the headers and metrics of every response."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hourmark.records.wire import CLOCK_HEADER, RULES_HEADER
from hourmark_delivery_service.errors import ServiceError
from hourmark_delivery_service.work.service import DeliveryService, clock_problem

_LOG = logging.getLogger(__name__)

HTTP_ERRORS: Final = {
    404: (
        "no_such_path",
        "there is no resource under this path",
        "see docs/reference/http-api.md for the paths",
    ),
    405: (
        "method",
        "this path does not support this method",
        "see docs/reference/http-api.md for the methods",
    ),
}
PROBLEM: Final = "application/problem+json"
# in a scope's extensions: a ServiceError, and this request's body is never read
REFUSED: Final = "hourmark.refused"
_CLOSE: Final = {"Connection": "close"}


def json_response(
    content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return an HTTP response with a JSON body and the media type `application/json`.

    Args:
        content: JSON-serializable content.
        status: HTTP status code.
        headers: Additional headers.
    """
    return Response(json.dumps(content) + "\n", status, headers, media_type="application/json")


def problem_response(
    error: ServiceError, status: int | None = None, headers: dict[str, str] | None = None
) -> Response:
    """Return the HTTP response for an error, as a JSON problem document (RFC 9457).

    The document has the members `title` (phrase of the HTTP status), `status`, `detail`, `code`
    (kind of error) and `next_step`. It has no member `type`.

    Args:
        error: Error to return.
        status: HTTP status code. By default, the status of the error.
        headers: Additional headers.
    """
    status = error.status if status is None else status
    content = {"title": HTTPStatus(status).phrase, "status": status, **error.problem}
    return Response(json.dumps(content) + "\n", status, headers, media_type=PROBLEM)


async def service_error(_: Request, error: Exception) -> Response:
    """Return the problem response (RFC 9457) for a `ServiceError`.

    The error determines the status, the JSON members and the headers of the response. The function
    is registered as a Starlette exception handler.

    Args:
        error: Error, which must be a `ServiceError`.
    """
    assert isinstance(error, ServiceError)
    return problem_response(error, headers=error.headers)


async def http_error(_: Request, error: Exception) -> Response:
    """Return the problem response (RFC 9457) for a Starlette `HTTPException`.

    Starlette raises this exception, for example, with status 404 for an unknown path. The function
    is registered as a Starlette exception handler.

    Args:
        error: Error, which must be an `HTTPException`.
    """
    assert isinstance(error, HTTPException)
    code, message, next_step = HTTP_ERRORS.get(
        error.status_code, ("refused", error.detail, "see docs/reference/http-api.md")
    )
    return problem_response(
        ServiceError(code, message, next_step), error.status_code, dict(error.headers or {})
    )


async def client_disconnected(_: Request, __: Exception) -> Response:
    """Return a response with status 499 for a client that disconnected before its body arrived.

    The client does not receive the response, but the metrics count it. nginx uses the same status
    for this case.
    """
    return Response(status_code=499)


async def internal_error(_: Request, __: Exception) -> Response:
    """Return a problem response with status 500 for an unexpected exception.

    After the response is sent, Starlette raises the exception again, and `ResponseMiddleware` logs
    it with its traceback.
    """
    return problem_response(
        ServiceError(
            "fault",
            "the service failed; nothing was acknowledged",
            "send the request again; if the error persists, check the log of the service",
        )
    )


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    await problem_response(scope["extensions"][REFUSED], headers=_CLOSE)(scope, receive, send)


class ResponseMiddleware:
    """ASGI middleware that adds headers to every response, and records request metrics.

    The headers contain the service's current time and the id of the latest rules revision (the
    version of the declared event types and sources).

    Args:
        app: Application that handles the requests.
        service: Service that provides the time, the rules and the metrics.
        routes: Routes of the application. Their paths are used as metric labels.
    """

    def __init__(self, app: ASGIApp, service: DeliveryService, routes: list[Route]) -> None:
        self._app = app
        self._service = service
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = self._service.clock.monotonic_s()
        path = self._path(scope)
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._mark(MutableHeaders(scope=message))
            await send(message)

        app = _refuse if REFUSED in scope.get("extensions", {}) else self._app
        try:
            await app(scope, receive, send_marked)
        except Exception:
            _LOG.exception("%s %s failed", scope["method"], path)
            if status != 500:  # otherwise `fault` has answered
                raise
        finally:
            self._service.metrics.requests.labels(path, str(status)).inc()
            self._service.metrics.request_seconds.labels(path).observe(
                self._service.clock.monotonic_s() - began_s
            )

    def refusal_response(self, error: ServiceError) -> Response:
        """Return the error response for input that cannot be parsed as an HTTP request.

        The response has the header `Connection: close`. The request is counted in the metrics.

        Args:
            error: Error to return, with its HTTP status.
        """
        answer = problem_response(error, headers=_CLOSE)
        self._mark(answer.headers)
        self._service.metrics.requests.labels("other", str(error.status)).inc()
        return answer

    def _mark(self, headers: MutableHeaders) -> None:
        now_ms = self._service.clock.now_ms()
        if not clock_problem(now_ms):
            headers[CLOCK_HEADER] = str(now_ms)
        latest = self._service.rules.latest
        if latest is not None:
            headers[RULES_HEADER] = latest.id

    def _path(self, scope: Scope) -> str:
        # The route's path instead of the request's, so that metrics have few labels.
        return next(
            (route.path for route in self._routes if route.matches(scope)[0] is not Match.NONE),
            "other",
        )
