"""What all connections of one server share: their places, and the time that each client has."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from hourmark.config_groups import Service as Settings
from hourmark_delivery_service.connections import Connections, Phase

_LINGER_S: Final = 2.0  # for a client to read the refusal while it still sends
_GRACE_S: Final = 5.0  # after a body's time, for the endpoint's own refusal
_SWEEP_S: Final = 0.5  # between looks for connections that are overdue


class Connection(Protocol):
    """One client's."""

    def drop(self) -> None:
        """Close it at once, and give its place back."""
        ...

    def overdue(self, phase: Phase) -> None:
        """The client took too long."""
        ...


class Door:
    """Lets connections in. Without a place for one more, the one goes whose client is nearest to its time limit."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.connections: Connections[Connection] = Connections(
            settings.connections_max,
            {
                Phase.HANDSHAKE: settings.header_seconds,
                Phase.HEAD: settings.header_seconds,
                Phase.BODY: settings.body_seconds + _GRACE_S,
                Phase.IDLE: settings.idle_seconds,
                Phase.READ: settings.idle_seconds,
                Phase.LINGER: _LINGER_S,
            },
        )
        self._sweeping = False

    def enter(self, connection: Connection, phase: Phase) -> bool:
        """A new connection, for which another one goes if there is no place; False if none may go."""
        loop = asyncio.get_running_loop()
        if self.connections.full():
            nearest = self.connections.nearest()
            if nearest is None:
                return False
            nearest.drop()
        self.connections.enter(connection, phase, loop.time())
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(_SWEEP_S, self._sweep, loop)
        return True

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection, phase in self.connections.overdue(loop.time()):
            connection.overdue(phase)
        self._sweeping = len(self.connections) > 0
        if self._sweeping:
            loop.call_later(_SWEEP_S, self._sweep, loop)
