"""The client of a request, and whether it is still connected.

The HTTP server stores the client in each request's ASGI scope and marks it when it disconnects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import ClientDisconnect, Request

_PEER: Final = "hourmark.peer"  # in a scope's extensions


class ClientPeer:
    """The client of one HTTP connection, with callbacks for its disconnection.

    Not thread-safe: use it in one event loop.

    Attributes:
        disconnected: Whether the connection is closed.
    """

    def __init__(self) -> None:
        self.disconnected = False
        self._leaving: dict[Callable[[], None], None] = {}

    def add_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Register a function that is called once when the client disconnects.

        If the client has already disconnected, the function is called immediately. Registering a
        function again has no effect.

        Args:
            callback: Function without arguments.
        """
        if self.disconnected:
            callback()
        else:
            self._leaving[callback] = None

    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Unregister a function that was passed to `add_disconnect_callback`.

        Does nothing if the function is not registered or has already been called.

        Args:
            callback: Function to unregister.
        """
        self._leaving.pop(callback, None)

    def mark_disconnected(self) -> None:
        """Record that the client's connection is closed.

        All registered callbacks are called once, in no guaranteed order. Further calls have no
        effect.
        """
        self.disconnected = True
        while self._leaving:
            self._leaving.popitem()[0]()

    def check_connected(self) -> None:
        """Check that the client has not disconnected.

        Call this method before expensive work for this client.

        Raises:
            ClientDisconnect: If the client has disconnected.
        """
        if self.disconnected:
            raise ClientDisconnect


def scope_extensions(peer: ClientPeer) -> dict[str, dict[str, object]]:
    """Return ASGI scope extensions that contain the client of a request.

    The HTTP server adds them to the scope of the request, so that `peer_of` can return the client.

    Args:
        peer: Client that sent the request.
    """
    return {_PEER: {"peer": peer}}


def peer_of(request: Request) -> ClientPeer:
    """Return the client that sent a request and waits for the response.

    Args:
        request: Request whose client was attached by the HTTP server.

    Returns:
        The client. If no client is attached, as in tests, a new client that never disconnects.
    """
    peer = request.scope.get("extensions", {}).get(_PEER, {}).get("peer")
    return peer if isinstance(peer, ClientPeer) else ClientPeer()
