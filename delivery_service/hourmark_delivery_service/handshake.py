"""The TLS handshake of a connection, within the same limits as all that follows it.

A listener that is given certificates shakes hands out of sight: half-open connections would take no place, and have a limit of
their own. So it listens plainly, a connection takes its place as it comes, and becomes one of HTTP after its handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any, ClassVar

from hourmark_delivery_service.connections import Phase
from hourmark_delivery_service.door import Door


class Handshake(asyncio.Protocol):
    """The protocol of a plain connection, whose socket it takes over at once. `then`: what speaks on it once it is secure."""

    door: ClassVar[Door]
    context: ClassVar[ssl.SSLContext]
    then: ClassVar[type[asyncio.Protocol]]

    def __init__(self, **given: Any) -> None:
        self._given = given
        self._socket: socket.socket | None = None  # until the handshake begins
        self._shaking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = transport.get_extra_info("socket").dup()
        transport.abort()  # type: ignore[attr-defined]  # of its own descriptor, before it reads from it
        if self.door.enter(self, Phase.HANDSHAKE):
            self._shaking = asyncio.get_running_loop().create_task(self._shake())
        else:
            self.drop()

    def drop(self) -> None:
        """Close it at once."""
        self.door.connections.leave(self)
        shaking, self._shaking = self._shaking, None  # no circle: a cancelled task's traceback holds this object
        if shaking is not None:
            shaking.cancel()
        if self._socket is not None:
            self._socket.close()

    def overdue(self, _: Phase) -> None:
        """The handshake took too long."""
        self.drop()

    def done(self, transport: asyncio.BaseTransport) -> None:
        """It is secure: the place goes to the one that speaks from now on."""
        self.door.connections.leave(self)
        protocol = self.then(**self._given)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    async def _shake(self) -> None:
        taken, self._socket = self._socket, None
        assert taken is not None
        limit_s = self.door.settings.header_seconds
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):  # the client left, does not speak TLS, or is not trusted
                await loop.connect_accepted_socket(lambda: _Secure(self), taken, ssl=self.context, ssl_handshake_timeout=limit_s)
        finally:
            self.door.connections.leave(self)


class _Secure(asyncio.Protocol):
    """Tells that a handshake is done, before anything is read."""

    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshake.done(transport)
