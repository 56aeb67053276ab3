"""The HTTP application: authentication, routes, middleware and error handlers.

docs/reference/http-api.md documents the API. If tokens are required, all paths except `OPEN_PATHS` need one.
"""

from __future__ import annotations

from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hourmark.records.wire import (
    EVENTS_PATH,
    HELLO_PATH,
    RANGES_PATH,
    REPORTS_PATH,
    VALIDATE_PATH,
)
from hourmark_delivery_service.access.grants import GRANT, AccessControl
from hourmark_delivery_service.edge.events_endpoint import EventsEndpoint
from hourmark_delivery_service.edge.openapi import OPENAPI_PATH
from hourmark_delivery_service.edge.probes import Probes
from hourmark_delivery_service.edge.ranges_endpoint import RangesEndpoint
from hourmark_delivery_service.edge.reports_endpoint import ReportsEndpoint
from hourmark_delivery_service.edge.responses import (
    ResponseMiddleware,
    client_disconnected,
    http_error,
    internal_error,
    service_error,
)
from hourmark_delivery_service.errors import ServiceError
from hourmark_delivery_service.work.service import DeliveryService
from hourmark_delivery_service.work.workers import CLIENT

OPEN_PATHS: Final = (
    "/healthz",
    "/readyz",
)  # asked by what watches over processes and knows no tokens


class AuthenticationMiddleware:
    """ASGI middleware that authenticates all requests except health and readiness probes.

    If authentication succeeds, the middleware stores the permissions of the request in its ASGI
    scope and passes the request to the application. Otherwise it sends an error response, and the
    application does not receive the request.

    Args:
        app: Application that receives the authenticated requests.
        access: Authenticates the requests by their bearer tokens.
    """

    def __init__(self, app: ASGIApp, access: AccessControl) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                grant = scope[GRANT] = self._access.grant(Headers(scope=scope))
                CLIENT.set(grant.token_id or (scope.get("client") or ("",))[0])
            except ServiceError as error:
                await (await service_error(Request(scope), error))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def api_routes(service: DeliveryService) -> list[Route]:
    """Return the Starlette routes of the HTTP API of a delivery service.

    The list contains one route for each path, including the health, readiness and metrics
    endpoints. All routes share the given service.

    Args:
        service: Service that handles the requests.
    """
    probes = Probes(service)
    events = EventsEndpoint(service)
    return [
        Route(RANGES_PATH, RangesEndpoint(service).post, methods=["POST"]),
        # before EVENTS_PATH, whose pattern matches it too
        Route(VALIDATE_PATH, events.validate, methods=["POST"]),
        Route(EVENTS_PATH, events.post, methods=["POST"]),
        Route(REPORTS_PATH, ReportsEndpoint(service).post, methods=["POST"]),
        Route(HELLO_PATH, probes.hello),
        Route("/healthz", probes.alive),
        Route("/readyz", probes.ready),
        Route("/metrics", probes.metrics),
        Route(OPENAPI_PATH, probes.openapi),
    ]


def create_app(service: DeliveryService) -> ASGIApp:
    """Return the ASGI application that serves the HTTP API of a delivery service.

    The application authenticates requests, converts `ServiceError` to problem responses (RFC 9457),
    and records request metrics.

    Args:
        service: Service that handles the requests.
    """
    routes = api_routes(service)
    handlers = {
        ServiceError: service_error,
        HTTPException: http_error,
        ClientDisconnect: client_disconnected,
        Exception: internal_error,
    }
    app = Starlette(routes=list(routes), exception_handlers=handlers)
    app.router.redirect_slashes = False  # a path with a trailing slash is answered with 404
    return ResponseMiddleware(AuthenticationMiddleware(app, service.access), service, routes)
