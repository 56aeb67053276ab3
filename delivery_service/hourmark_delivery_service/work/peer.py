"""Who waits for an answer.

The HTTP server puts it into each request's scope, and says when it is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import ClientDisconnect, Request

_PEER: Final = "hourmark.peer"  # in a scope's extensions


class ClientPeer:
    """The other side of one connection."""

    def __init__(self) -> None:
        self.disconnected = False
        self._leaving: dict[Callable[[], None], None] = {}

    def add_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Call this once when it leaves, or now if it did."""
        if self.disconnected:
            callback()
        else:
            self._leaving[callback] = None

    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._leaving.pop(callback, None)

    def mark_disconnected(self) -> None:
        """The connection is lost."""
        self.disconnected = True
        while self._leaving:
            self._leaving.popitem()[0]()

    def check_connected(self) -> None:
        """ClientDisconnect if there is nobody to work for."""
        if self.disconnected:
            raise ClientDisconnect


def scope_extensions(peer: ClientPeer) -> dict[str, dict[str, object]]:
    """A scope's extensions, with who waits."""
    return {_PEER: {"peer": peer}}


def peer_of(request: Request) -> ClientPeer:
    """Who waits for this request's answer; one that never leaves where no server says."""
    peer = request.scope.get("extensions", {}).get(_PEER, {}).get("peer")
    return peer if isinstance(peer, ClientPeer) else ClientPeer()
