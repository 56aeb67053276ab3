"""Syslog over TCP (RFC 6587), TLS (RFC 5425) and UDP (RFC 5426).

Syslog over TCP (RFC 6587) and TLS (RFC 5425): connections that are kept open, each a stream of
messages.

There is no answer that tells a sender what arrived: what the kernel had taken when the tailer was
killed is lost, and counted as unknown. A stop reads what has arrived first. A connection that says
what nobody can read, or nothing for long, is closed.

Syslog over UDP (RFC 5426): a message a datagram, and nobody waits for anybody.

What finds no room is read and counted, in bytes. What the kernel drops it counts itself, in
datagrams, so of bytes nothing is known. Its counter (SO_MEMINFO, Linux 4.12) is read after each
round, before the source may be called caught up: a control message with a datagram (SO_RXQ_OVFL)
tells of drops before that datagram only, and never of those at the end of a burst. What comes while
no tailer runs is not known to anyone: each start after the first reports an unknown loss.

TLS of what listens for syslog (RFC 5425), 1.2 or newer. Files that change are read again before the
next connection.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Final

from hourmark.config.groups import SyslogTls
from hourmark.errors import ConfigError
from hourmark.process.certificates import WatchedFiles, load_cas, load_pair
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.receive.framing import Framer, line_of
from hourmark_producer.receive.receiver import READ_BYTES, Polled

if TYPE_CHECKING:
    from hourmark_producer.receive.receiver import Receiver

_BACKLOG: Final = 128
_HANDSHAKE_S: Final = 10.0
_ACCEPT_AGAIN_S: Final = 1.0  # after no connection could be accepted, as descriptors are used up
_KERNEL_BYTES: Final = (
    1 << 18
)  # of a connection: a kill loses them, so not as many as the system would give
_LOG = logging.getLogger(__name__)


class Streams:
    """One address to listen at."""

    is_lost_in_between = False
    has_end = False
    resumes = False

    def __init__(
        self,
        address: tuple[str, int],
        *,
        message_bytes_max: int,
        connections_max: int,
        idle_s: float,
        tls: Tls | None = None,
    ) -> None:
        self._asked = address
        self._message_bytes_max, self._connections_max, self._idle_s = (
            message_bytes_max,
            connections_max,
            idle_s,
        )
        self._tls = tls
        self._connections: dict[int, Connection] = {}
        self._accepts_from_s: float | None = (
            None  # monotonic; until then the listener is not watched
        )

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._listener = listening(self._asked, socket.SOCK_STREAM, receiver.source)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._watch_listener()
        _LOG.info(
            "source %s listens for syslog over TCP at %s port %d", receiver.source, *self.address
        )

    def _watch_listener(self) -> None:
        self._accepts_from_s = None
        self._receiver.watch(self._listener.fileno(), Polled(self._accept))

    @property
    def is_at_hand(self) -> bool:
        """Whether senders that wait are accepted."""
        return self._accepts_from_s is None

    def tend(self, now_s: float) -> None:
        if self._accepts_from_s is not None and now_s >= self._accepts_from_s:
            self._watch_listener()
        if self._receiver.is_held:
            for connection in self._connections.values():
                connection.active_s = now_s  # it is we who make it wait
        for connection in list(self._connections.values()):
            limit_s = (
                min(self._idle_s, _HANDSHAKE_S) if connection.is_shaking_hands else self._idle_s
            )
            if now_s - connection.active_s > limit_s:
                self._end(connection, f"said nothing for {limit_s:.0f} s")

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self._end(connection, "")
        self._receiver.unwatch(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> bool:
        accepted = False
        while True:
            try:
                accepted_socket, peer = self._listener.accept()
            except BlockingIOError:
                return not accepted  # what new ones have sent is read in the next round
            except OSError as error:  # too many open files; or it is gone again
                self._warn(
                    "accept",
                    f"no connection could be accepted: {error.strerror}; tried again every "
                    f"{_ACCEPT_AGAIN_S:.0f} s. Raise "
                    "LimitNOFILE, or lower tailer.syslog.connections_max",
                )
                self._receiver.unwatch(self._listener.fileno())
                self._accepts_from_s = self._receiver.clock.monotonic_s() + _ACCEPT_AGAIN_S
                return False
            if len(self._connections) >= self._connections_max:
                accepted_socket.close()
                self._warn(
                    "many",
                    f"more than {self._connections_max} connections "
                    f"(tailer.syslog.connections_max): {peer[0]} is refused",
                )
                continue
            accepted_socket.setblocking(False)
            accepted = True
            self._begin(accepted_socket, str(peer[0]))

    def _begin(self, accepted: socket.socket, peer: str) -> None:
        try:
            wrapped = self._tls.wrap(accepted) if self._tls is not None else accepted
        except OSError as error:
            accepted.close()
            self._warn(f"begin {peer}", f"{peer} is refused: {error}")
            return
        connection = Connection(
            wrapped, peer, Framer(self._message_bytes_max), self._receiver.clock.monotonic_s()
        )
        self._connections[wrapped.fileno()] = connection
        self._receiver.watch(wrapped.fileno(), Polled(lambda: self._read(connection)))

    def _read(self, connection: Connection) -> bool:
        try:
            data = connection.read()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        except OSError as error:
            self._end(connection, f"broke off: {error.strerror or error}")
            return True
        if not data:
            self._receiver.receive(line_of(connection.framer.end()))
            self._end(connection, "")
            return True
        connection.active_s = self._receiver.clock.monotonic_s()
        framed = connection.framer.feed(data)
        for message in framed.messages:
            self._receiver.receive(line_of(message))
        if framed.skipped:
            what = f"longer than {self._message_bytes_max} bytes (tailer.syslog.message_bytes_max)"
            self._receiver.losses.add(f"messages {what}", lost_bytes=framed.skipped)
            self._warn(
                f"long {connection.peer}",
                f"{connection.peer} sends messages {what}; they are passed over, and "
                "counted as lost",
            )
        if framed.flaw:
            self._receiver.losses.add("a stream that is no syslog", unknown=1)
            self._end(connection, f"cannot be understood: {framed.flaw} (RFC 6587)")
        return len(data) < READ_BYTES

    def _end(self, connection: Connection, why: str) -> None:
        if why:
            self._warn(
                f"end {connection.peer}", f"a connection from {connection.peer} {why}; it is closed"
            )
        if left := connection.framer.unfinished_bytes:
            self._receiver.losses.add("connections that ended within a message", lost_bytes=left)
        self._connections.pop(connection.socket.fileno(), None)
        self._receiver.unwatch(connection.socket.fileno())
        connection.socket.close()

    def _warn(self, key: str, message: str) -> None:
        self._receiver.throttle.warn(
            f"{key} {self._receiver.source}", f"source {self._receiver.source}: {message}"
        )


class Connection:
    """One, since its sender is accepted. `active_s`: when it said something last, monotonic."""

    def __init__(self, connected: socket.socket, peer: str, framer: Framer, now_s: float) -> None:
        self.socket, self.peer, self.framer, self.active_s = connected, peer, framer, now_s

    @property
    def is_shaking_hands(self) -> bool:
        """Whether TLS has not begun yet."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.version() is None

    def read(self) -> bytes:
        """All that has arrived, or a good deal of it; nothing at its end.

        BlockingIOError, SSLWantReadError: nothing yet.
        """
        data = self.socket.recv(READ_BYTES)
        while (
            isinstance(self.socket, ssl.SSLSocket) and data and len(data) < READ_BYTES
        ):  # TLS gives a record at a time
            try:
                more = self.socket.recv(READ_BYTES)
            except OSError:  # nothing more yet; whatever else it is, the next read meets it again
                break
            if not more:
                break
            data += more
        return data


def listening(address: tuple[str, int], kind: socket.SocketKind, source: str) -> socket.socket:
    """A socket that does not block; ConfigError where the address cannot be had."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    made = socket.socket(family, kind)
    try:
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BYTES)
        made.bind(address)
        if kind == socket.SOCK_STREAM:
            made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise ConfigError(
            f"source {source}: {address[0]} port {address[1]} cannot be listened at "
            f"({error.strerror}); name another in `input`"
        ) from error
    made.setblocking(False)
    return made


_DATAGRAM_BYTES_MAX: Final = 1 << 16
_A_ROUND: Final = 1000  # datagrams
_SO_MEMINFO: Final = 55  # asm-generic/socket.h; Python has no name for it
_DATAGRAM_KERNEL_BYTES: Final = 8 << 20  # asked for; the system gives net.core.rmem_max at most
_MEMINFO: Final = struct.Struct(
    "=32xI"
)  # linux/sock_diag.h: SK_MEMINFO_DROPS is the ninth of its numbers


class Datagrams:
    """One address to listen at."""

    is_lost_in_between = True
    is_at_hand = True
    has_end = False
    resumes = False

    def __init__(self, address: tuple[str, int], message_bytes_max: int) -> None:
        self._asked, self._message_bytes_max = address, message_bytes_max
        self._dropped = 0  # by the kernel, since the socket is there

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._socket = listening(self._asked, socket.SOCK_DGRAM, receiver.source)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _DATAGRAM_KERNEL_BYTES)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        receiver.watch(self._socket.fileno(), Polled(self._read, when_held=True))
        _LOG.info(
            "source %s listens for syslog over UDP at %s port %d", receiver.source, *self.address
        )

    def tend(self, now_s: float) -> None:  # noqa: ARG002  # as `Input` has it
        self._count_dropped()

    def close(self) -> None:
        self._count_dropped()
        self._receiver.unwatch(self._socket.fileno())
        self._socket.close()

    def _read(self) -> bool:
        for _ in range(_A_ROUND):
            try:
                message = self._socket.recv(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return True
            self._take(message)
        return False

    def _take(self, message: bytes) -> None:
        losses, limit = self._receiver.losses, self._message_bytes_max
        if len(message) > limit:
            losses.add(
                f"messages longer than {limit} bytes (tailer.syslog.message_bytes_max)",
                lost_bytes=len(message),
            )
        elif self._receiver.is_held:
            losses.add(
                "datagrams for which there was no room (tailer.spool.bytes_max)",
                lost_bytes=len(message),
            )
        else:
            self._receiver.receive(line_of(message))

    def _count_dropped(self) -> None:
        """Report what the kernel has dropped since the call before."""
        (count,) = _MEMINFO.unpack(
            self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        )
        if more := (count - self._dropped) % (1 << 32):
            self._receiver.losses.add(
                "datagrams that the kernel dropped, coming faster than they were read", unknown=more
            )
        self._dropped = count


_GROUP: Final = "tailer.syslog.tls"


class Tls:
    """Certificates of one listener. ConfigError where they cannot be used."""

    def __init__(self, settings: SyslogTls, throttle: ConditionLog) -> None:
        self._settings, self._throttle = settings, throttle
        self._watched = WatchedFiles([settings.certificate, settings.key, settings.client_ca])
        self._context = _context(settings)

    def wrap(self, accepted: socket.socket) -> ssl.SSLSocket:
        """The handshake is part of the first reads."""
        if self._watched.changed():
            try:
                self._context = _context(self._settings)
                self._throttle.resolve(_GROUP)
            except ConfigError as error:
                self._throttle.warn(_GROUP, f"{error}. The certificates of before stay in use")
        return self._context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)


def _context(settings: SyslogTls) -> ssl.SSLContext:
    assert settings.certificate is not None, "it is checked at the start"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= (
        ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    )  # who resumes, shows no certificate
    context.num_tickets = 0
    load_pair(context, _GROUP, settings.certificate, settings.key)
    if settings.client_ca is not None:
        load_cas(context, f"{_GROUP}.client_ca", settings.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
