"""Authentication of requests: if tokens are required, only `OPEN_PATHS` need none."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from hourmark_delivery_service.access.grants import GRANT, AccessControl
from hourmark_delivery_service.edge.responses import service_error
from hourmark_delivery_service.errors import ServiceError
from hourmark_delivery_service.work.workers import CLIENT

OPEN_PATHS: Final = (
    "/healthz",
    "/readyz",
)  # asked by what watches over processes and knows no tokens


class AuthenticationMiddleware:
    """ASGI middleware that authenticates each request except the health and readiness probes.

    An authenticated request is passed on with its grant in the scope. Any other request is answered
    with an error response.
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
