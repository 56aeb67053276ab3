"""Connections of clients: their number and age, and the TLS handshake within the same limits.

Which connections a client keeps open without need: those overdue, and the one that makes room for
another. Pure.

A connection is in one phase at a time. In each but `ANSWER` the service waits for the client, which
has until a deadline:

    HANDSHAKE for its part of TLS
    HEAD      for the rest of a request's headers, or for the first byte on a new connection
    BODY      for the rest of a request's body
    IDLE      for the next request
    READ      until it reads what was answered
    LINGER    until it has seen an answer that came before its body was whole, and ends the connection itself

So thousands of half-open connections take no place from a client that speaks: where all places are
taken, the connection whose deadline is the nearest goes. A flood can push out an idle client, which
connects anew, and never a request that came whole.

What all connections of one server share: their places, and the time that each client has.

The TLS handshake of a connection, within the same limits as all that follows it.

A listener that is given certificates shakes hands out of sight: half-open connections would take no
place, and have a limit of their own. So it listens plainly, a connection takes its place as it
comes, and becomes one of HTTP after its handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from hourmark.config.groups import Service as Settings

OTHER_FILES: Final = 256  # open beside connections: Kafka's, and the service's own

C = TypeVar("C")


class ConnectionPhase(enum.Enum):
    """What a connection is at."""

    HANDSHAKE = "handshake"
    HEAD = "head"
    BODY = "body"
    IDLE = "idle"
    READ = "read"
    LINGER = "linger"
    ANSWER = "answer"


class ConnectionTable(Generic[C]):
    """Those that are open.

    `limits_s`: how long a client may take for each phase; times are of one monotonic clock.
    """

    def __init__(self, connections_max: int, limits_s: Mapping[ConnectionPhase, float]) -> None:
        self._connections_max = connections_max
        self._limits_s = limits_s
        self._phases: dict[C, ConnectionPhase] = {}
        self._since: dict[ConnectionPhase, dict[C, float]] = {
            phase: {} for phase in ConnectionPhase
        }  # in order of time: the first is the oldest

    def __len__(self) -> int:
        return len(self._phases)

    def set_phase(self, connection: C, phase: ConnectionPhase, now_s: float) -> None:
        """From now on it is in this phase; if it was already, nothing changes."""
        before = self._phases.get(connection)
        if before is phase:
            return
        if before is not None:
            del self._since[before][connection]
        self._phases[connection] = phase
        self._since[phase][connection] = now_s

    def remove(self, connection: C) -> None:
        """It is closed."""
        phase = self._phases.pop(connection, None)
        if phase is not None:
            del self._since[phase][connection]

    def get_phase(self, connection: C) -> ConnectionPhase | None:
        """Where it is; None once it left."""
        return self._phases.get(connection)

    def is_full(self) -> bool:
        """Whether there is no place for one more."""
        return len(self._phases) >= self._connections_max

    def nearest_deadline(self) -> C | None:
        """The one whose deadline is the nearest. None where the service owes all of them
        an answer.
        """
        oldest = [
            (since_s + self._limits_s[phase], connection)
            for phase, connections in self._since.items()
            if phase in self._limits_s
            for connection, since_s in _first(connections)
        ]
        return min(oldest, key=lambda pair: pair[0])[1] if oldest else None

    def overdue(self, now_s: float) -> list[tuple[C, ConnectionPhase]]:
        """Those whose deadline is past, and what they were waited for."""
        late: list[tuple[C, ConnectionPhase]] = []
        for phase, limit_s in self._limits_s.items():
            for connection, since_s in self._since[phase].items():
                if since_s + limit_s > now_s:
                    break
                late.append((connection, phase))
        return late


def _first(connections: dict[C, float]) -> Iterable[tuple[C, float]]:
    for pair in connections.items():
        return (pair,)
    return ()


_LINGER_S: Final = 2.0  # for a client to read the refusal while it still sends
_GRACE_S: Final = 5.0  # after a body's time, for the endpoint's own refusal
_SWEEP_S: Final = 0.5  # between looks for connections that are overdue


class ClientConnection(Protocol):
    """One client's."""

    def abort(self) -> None:
        """Close it at once, and give its place back."""
        ...

    def on_overdue(self, phase: ConnectionPhase) -> None:
        """The client took too long."""
        ...


class ConnectionLimiter:
    """Lets connections in.

    Without a place for one more, the one goes whose client is nearest to its time limit.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.connections: ConnectionTable[ClientConnection] = ConnectionTable(
            settings.connections_max,
            {
                ConnectionPhase.HANDSHAKE: settings.header_seconds,
                ConnectionPhase.HEAD: settings.header_seconds,
                ConnectionPhase.BODY: settings.body_seconds + _GRACE_S,
                ConnectionPhase.IDLE: settings.idle_seconds,
                ConnectionPhase.READ: settings.idle_seconds,
                ConnectionPhase.LINGER: _LINGER_S,
            },
        )
        self._sweeping = False

    def admit(self, connection: ClientConnection, phase: ConnectionPhase) -> bool:
        """A new connection, for which another one goes if there is no place; False if
        none may go.
        """
        loop = asyncio.get_running_loop()
        if self.connections.is_full():
            nearest = self.connections.nearest_deadline()
            if nearest is None:
                return False
            nearest.abort()
        self.connections.set_phase(connection, phase, loop.time())
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(_SWEEP_S, self._sweep, loop)
        return True

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection, phase in self.connections.overdue(loop.time()):
            connection.on_overdue(phase)
        self._sweeping = len(self.connections) > 0
        if self._sweeping:
            loop.call_later(_SWEEP_S, self._sweep, loop)


class TlsHandshake(asyncio.Protocol):
    """The protocol of a plain connection, whose socket it takes over at once.

    `then`: what speaks on it once it is secure.
    """

    limiter: ClassVar[ConnectionLimiter]
    tls_context: ClassVar[ssl.SSLContext]
    http_protocol: ClassVar[type[asyncio.Protocol]]

    def __init__(self, **given: Any) -> None:
        self._given = given
        self._socket: socket.socket | None = None  # until the handshake begins
        self._shaking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = transport.get_extra_info("socket").dup()
        # of its own descriptor, before it reads from it
        transport.abort()  # type: ignore[attr-defined]
        if self.limiter.admit(self, ConnectionPhase.HANDSHAKE):
            self._shaking = asyncio.get_running_loop().create_task(self._shake())
        else:
            self.abort()

    def abort(self) -> None:
        """Close it at once."""
        self.limiter.connections.remove(self)
        shaking, self._shaking = (
            self._shaking,
            None,
        )  # no circle: a cancelled task's traceback holds this object
        if shaking is not None:
            shaking.cancel()
        if self._socket is not None:
            self._socket.close()

    def on_overdue(self, _: ConnectionPhase) -> None:
        """The handshake took too long."""
        self.abort()

    def complete(self, transport: asyncio.BaseTransport) -> None:
        """It is secure: the place goes to the one that speaks from now on."""
        self.limiter.connections.remove(self)
        protocol = self.http_protocol(**self._given)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    async def _shake(self) -> None:
        taken, self._socket = self._socket, None
        assert taken is not None
        limit_s = self.limiter.settings.header_seconds
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(
                OSError
            ):  # the client left, does not speak TLS, or is not trusted
                await loop.connect_accepted_socket(
                    lambda: _Secure(self),
                    taken,
                    ssl=self.tls_context,
                    ssl_handshake_timeout=limit_s,
                )
        finally:
            self.limiter.connections.remove(self)


class _Secure(asyncio.Protocol):
    """Tells that a handshake is done, before anything is read."""

    def __init__(self, handshake: TlsHandshake) -> None:
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshake.complete(transport)
