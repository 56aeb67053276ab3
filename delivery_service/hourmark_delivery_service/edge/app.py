"""The HTTP application: routes, middleware and error handlers. See docs/http-api.md."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp

from hourmark.records.wire import EVENTS_PATH, HELLO_PATH, RANGES_PATH, REPORTS_PATH
from hourmark_delivery_service.edge.authentication import AuthenticationMiddleware
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


def api_routes(service: DeliveryService) -> list[Route]:
    """Return the routes of the HTTP API, one for each path, bound to a delivery service."""
    probes = Probes(service)
    return [
        Route(RANGES_PATH, RangesEndpoint(service).post, methods=["POST"]),
        Route(EVENTS_PATH, EventsEndpoint(service).post, methods=["POST"]),
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
