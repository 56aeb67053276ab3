"""Limits on client connections, including their TLS handshakes.

A connection is in one phase at a time. In each phase but `ANSWER` the service waits for the client,
and the client has a deadline:

    HANDSHAKE   the client must complete the TLS handshake
    HEAD        the client must send the rest of the headers, or the first byte of a new connection
    BODY        the client must send the rest of the request body
    IDLE        the client must send its next request
    READ        the client must read the response
    LINGER      the client must close the connection, after a response before the end of its body
    ANSWER      the service owes a response

If the number of connections reaches its limit, the connection with the nearest deadline is closed
in favor of a new one. A flood of half-open connections can therefore displace idle clients, which
reconnect, but never a request that has arrived completely.

A TLS listener of asyncio performs handshakes internally, with a separate limit on half-open
connections. The service therefore listens without TLS, counts a connection when it is accepted,
performs the handshake itself, and then switches the connection to HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from hourmark.config.groups import ServiceSettings as Settings

OTHER_FILES: Final = (
    256  # open in addition to connections: by Kafka's client and the service itself
)

C = TypeVar("C")


class ConnectionPhase(enum.Enum):
    """The phase of a client connection: the next expected action of the client or the service.

    Attributes:
        HANDSHAKE: The client must complete the TLS handshake.
        HEAD: The client must send the rest of the request headers.
        BODY: The client must send the rest of the request body.
        IDLE: The client must send its next request.
        READ: The client must read the response.
        LINGER: The client must close the connection, because the service responded before it had
            received the whole request body.
        ANSWER: The service must respond. This phase has no deadline.
    """

    HANDSHAKE = "handshake"
    HEAD = "head"
    BODY = "body"
    IDLE = "idle"
    READ = "read"
    LINGER = "linger"
    ANSWER = "answer"


class ConnectionTable(Generic[C]):
    """The open client connections with the current phase and deadline of each.

    The phase is the next expected action, such as sending the headers. The table performs no I/O
    and closes no connections. All times are seconds of the same monotonic clock. Not thread-safe.

    Args:
        connections_max: Maximum number of connections.
        limits_s: Maps each phase to its time limit in seconds. A phase without a limit has no
            deadline.
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
        """Set the phase of a connection, and add the connection if it is new.

        The deadline is `now_s` plus the time limit of the phase. If the connection is already in
        this phase, its deadline does not change.

        Args:
            connection: Connection to update.
            phase: New phase.
            now_s: Current time in monotonic seconds.
        """
        before = self._phases.get(connection)
        if before is phase:
            return
        if before is not None:
            del self._since[before][connection]
        self._phases[connection] = phase
        self._since[phase][connection] = now_s

    def remove(self, connection: C) -> None:
        """Remove a closed connection from the table.

        Does nothing if the connection is not in the table.

        Args:
            connection: Connection to remove.
        """
        phase = self._phases.pop(connection, None)
        if phase is not None:
            del self._since[phase][connection]

    def get_phase(self, connection: C) -> ConnectionPhase | None:
        """Return the current phase of a connection.

        The phase is the next expected action, such as sending the headers.

        Args:
            connection: Connection to look up.

        Returns:
            The phase, or None if the connection is not in the table.
        """
        return self._phases.get(connection)

    def is_full(self) -> bool:
        """Return whether the number of open connections has reached `connections_max`.

        The table does not enforce the maximum. The caller must check it before it adds a
        connection.
        """
        return len(self._phases) >= self._connections_max

    def nearest_deadline(self) -> C | None:
        """Return the connection with the earliest deadline, which may already have passed.

        The connection remains in the table.

        Returns:
            The connection, or None if no connection has a deadline.
        """
        oldest = [
            (since_s + self._limits_s[phase], connection)
            for phase, connections in self._since.items()
            if phase in self._limits_s
            for connection, since_s in _first(connections)
        ]
        return min(oldest, key=lambda pair: pair[0])[1] if oldest else None

    def overdue(self, now_s: float) -> list[tuple[C, ConnectionPhase]]:
        """Return all connections that have missed their deadline, with their phases.

        The connections remain in the table. The caller should close them.

        Args:
            now_s: Current time in monotonic seconds.

        Returns:
            Pairs of a connection and its phase. Empty if no deadline has passed.
        """
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
_SWEEP_S: Final = 0.5  # between checks for overdue connections


class ClientConnection(Protocol):
    """Interface to a client connection that `ConnectionLimiter` can close.

    The asyncio protocol of each accepted connection implements this interface.
    """

    def abort(self) -> None:
        """Close the connection immediately, without sending a response.

        The implementation must also remove the connection from the table of open connections.
        """
        ...

    def on_overdue(self, phase: ConnectionPhase) -> None:
        """Handle a missed deadline of the client, for example by closing the connection.

        `ConnectionLimiter` calls this method when the time limit of the current phase is exceeded.

        Args:
            phase: Phase whose time limit was exceeded.
        """
        ...


class ConnectionLimiter:
    """Admits client connections up to the configured maximum and enforces their deadlines.

    After the first connection is admitted, deadlines are checked every 0.5 seconds in the running
    event loop.

    Args:
        settings: Settings of the service, with the maximum number of connections and the time
            limits.

    Attributes:
        connections: The open connections. Each connection must remove itself from this table when
            it is closed.
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
        """Add a new connection to the table of open connections.

        If the maximum number of connections is reached, the connection with the earliest deadline
        is closed to make room. Call this method in the event loop.

        Args:
            connection: Connection to add.
            phase: Initial phase of the connection.

        Returns:
            True if the connection was added. False if the maximum is reached and no connection has
            a deadline, because all of them are waiting for a response from the service. The caller
            must then close the new connection.
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
    """An asyncio protocol that performs the TLS handshake of an accepted TCP connection.

    The handshake has a time limit and counts toward the maximum number of connections. Afterwards,
    an instance of `http_protocol` takes over the encrypted connection. Each server needs a subclass
    that sets the attributes.

    Attributes:
        limiter: Limits that all connections of the server share.
        tls_context: TLS context of the server.
        http_protocol: Protocol class for the encrypted connection.
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
        """Cancel the handshake and close the TCP connection immediately.

        The connection is also removed from the table of open connections. Implements
        `ClientConnection`.
        """
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
        """Close the connection because the client did not complete the handshake in time.

        The client receives no response. Implements `ClientConnection`.
        """
        self.abort()

    def complete(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over to the HTTP protocol after a successful handshake.

        Args:
            transport: Encrypted transport of the connection.
        """
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
    def __init__(self, handshake: TlsHandshake) -> None:
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshake.complete(transport)
