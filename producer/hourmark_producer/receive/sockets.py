"""Syslog over TCP (RFC 6587), TLS (RFC 5425) and UDP (RFC 5426).

TCP and TLS connections stay open, and each is a stream of messages. The protocols have no
acknowledgments, so bytes that the kernel had received when the tailer was killed are lost and
counted as an unknown loss. A regular stop reads them first. A connection with an invalid stream, or
one that is idle for too long, is closed.

Each UDP datagram is one message. If the spool is full, datagrams are read and counted as lost, in
bytes. Datagrams that the kernel drops are counted by the kernel (SO_MEMINFO, Linux 4.12), so the
lost bytes are unknown. The counter is read after each round, before the source may be called caught
up; SO_RXQ_OVFL would miss drops at the end of a burst. Datagrams that arrive while no tailer runs
cannot be counted, so each start after the first records an unknown loss.

TLS requires version 1.2 or newer. Certificate files that change are read again before the next
connection.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Final

from hourmark.config.groups import SyslogTls
from hourmark.errors import ConfigError
from hourmark.process.certificates import WatchedFiles, load_ca_certificates, load_certificate
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.receive.framing import SyslogFramer, message_to_line
from hourmark_producer.receive.receiver import READ_BYTES, ReadCallback

if TYPE_CHECKING:
    from hourmark_producer.receive.receiver import SourceReceiver

_BACKLOG: Final = 128
_HANDSHAKE_S: Final = 10.0
_ACCEPT_AGAIN_S: Final = 1.0  # delay after accept failed, for example for lack of descriptors
_KERNEL_BYTES: Final = (
    1 << 18
)  # receive buffer per connection; a kill loses it, so below the system's default
_LOG = logging.getLogger(__name__)


class SyslogStreamInput:
    """Receives syslog messages over TCP or TLS connections to one address.

    A `SourceReceiver` calls its methods.

    Args:
        address: Host and port to listen on.
        message_bytes_max: Maximum length of a message in bytes. Longer messages are skipped and
            counted as lost.
        connections_max: Maximum number of open connections. Further connections are refused.
        idle_s: Seconds without data after which a connection is closed.
        tls: Certificates of the listener; None for TCP without TLS.
    """

    loses_while_stopped = False
    has_end = False
    is_resumable = False

    def __init__(
        self,
        address: tuple[str, int],
        *,
        message_bytes_max: int,
        connections_max: int,
        idle_s: float,
        tls: ListenerTls | None = None,
    ) -> None:
        self._bind_address = address
        self._message_bytes_max, self._connections_max, self._idle_s = (
            message_bytes_max,
            connections_max,
            idle_s,
        )
        self._tls = tls
        self._connections: dict[int, SyslogConnection] = {}
        self._accepts_from_s: float | None = (
            None  # monotonic; until then the listener is not watched
        )

    def open(self, receiver: SourceReceiver) -> None:
        self._receiver = receiver
        self._listener = open_listener(self._bind_address, socket.SOCK_STREAM, receiver.source)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._watch_listener()
        _LOG.info(
            "source %s listens for syslog over TCP at %s port %d", receiver.source, *self.address
        )

    def _watch_listener(self) -> None:
        self._accepts_from_s = None
        self._receiver.watch(self._listener.fileno(), ReadCallback(self._accept))

    @property
    def is_caught_up(self) -> bool:
        """Return whether connections are accepted. False for some time after accept(2) fails."""
        return self._accepts_from_s is None

    def tick(self, now_s: float) -> None:
        if self._accepts_from_s is not None and now_s >= self._accepts_from_s:
            self._watch_listener()
        if self._receiver.is_paused:
            for connection in self._connections.values():
                connection.last_read_s = now_s  # the receiver makes it wait
        for connection in list(self._connections.values()):
            limit_s = (
                min(self._idle_s, _HANDSHAKE_S) if connection.is_in_handshake else self._idle_s
            )
            if now_s - connection.last_read_s > limit_s:
                self._close_connection(connection, f"was idle for {limit_s:.0f} s")

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self._close_connection(connection, "")
        self._receiver.unwatch(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> bool:
        accepted = False
        while True:
            try:
                accepted_socket, peer = self._listener.accept()
            except BlockingIOError:
                return not accepted  # data of new connections is read in the next round
            except OSError as error:  # too many open files, or the connection is gone again
                self._warn(
                    "accept",
                    f"cannot accept a connection: {error.strerror}; retrying every "
                    f"{_ACCEPT_AGAIN_S:.0f} s. Raise LimitNOFILE or lower "
                    "tailer.syslog.connections_max",
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
            self._add_connection(accepted_socket, str(peer[0]))

    def _add_connection(self, accepted: socket.socket, peer: str) -> None:
        try:
            wrapped = self._tls.wrap(accepted) if self._tls is not None else accepted
        except OSError as error:
            accepted.close()
            self._warn(f"begin {peer}", f"{peer} is refused: {error}")
            return
        connection = SyslogConnection(
            wrapped, peer, SyslogFramer(self._message_bytes_max), self._receiver.clock.monotonic_s()
        )
        self._connections[wrapped.fileno()] = connection
        self._receiver.watch(wrapped.fileno(), ReadCallback(lambda: self._read(connection)))

    def _read(self, connection: SyslogConnection) -> bool:
        try:
            data = connection.read()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        except OSError as error:
            self._close_connection(connection, f"was interrupted: {error.strerror or error}")
            return True
        if not data:
            self._receiver.receive(message_to_line(connection.framer.finish()))
            self._close_connection(connection, "")
            return True
        connection.last_read_s = self._receiver.clock.monotonic_s()
        framed = connection.framer.feed(data)
        for message in framed.messages:
            self._receiver.receive(message_to_line(message))
        if framed.skipped_bytes:
            what = f"longer than {self._message_bytes_max} bytes (tailer.syslog.message_bytes_max)"
            self._receiver.losses.add(f"messages {what}", lost_bytes=framed.skipped_bytes)
            self._warn(
                f"long {connection.peer}",
                f"{connection.peer} sends messages {what}; they are skipped and counted as lost",
            )
        if framed.error:
            self._receiver.losses.add("a stream that is not syslog", unknown=1)
            self._close_connection(connection, f"violates RFC 6587: {framed.error}")
        return len(data) < READ_BYTES

    def _close_connection(self, connection: SyslogConnection, why: str) -> None:
        if why:
            self._warn(
                f"end {connection.peer}",
                f"the connection from {connection.peer} {why}; it is closed",
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


class SyslogConnection:
    """One accepted syslog connection over TCP or TLS.

    The constructor takes the values of all attributes.

    Attributes:
        socket: The connected socket, with TLS if it is configured.
        peer: IP address of the sender.
        framer: Splits the stream into messages.
        last_read_s: Time at which data was last received, in monotonic seconds.
    """

    def __init__(
        self, connected: socket.socket, peer: str, framer: SyslogFramer, now_s: float
    ) -> None:
        self.socket, self.peer, self.framer, self.last_read_s = connected, peer, framer, now_s

    @property
    def is_in_handshake(self) -> bool:
        """Return whether the TLS handshake is incomplete; always False without TLS."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.version() is None

    def read(self) -> bytes:
        """Return at most about 64 KiB of received data, or `b""` at the end of the stream.

        Raises:
            BlockingIOError: No data is available yet.
            ssl.SSLWantReadError: TLS must read more data first.
            ssl.SSLWantWriteError: TLS must write data first.
            OSError: The connection failed.
        """
        data = self.socket.recv(READ_BYTES)
        while (
            isinstance(self.socket, ssl.SSLSocket) and data and len(data) < READ_BYTES
        ):  # TLS returns one record at a time
            try:
                more = self.socket.recv(READ_BYTES)
            except OSError:  # nothing more yet; the next read raises any other error again
                break
            if not more:
                break
            data += more
        return data


def open_listener(address: tuple[str, int], kind: socket.SocketKind, source: str) -> socket.socket:
    """Create a non-blocking socket and bind it to an address. A stream socket also listens.

    Args:
        address: Host and port.
        kind: `SOCK_STREAM` or `SOCK_DGRAM`.
        source: Name of the source, used in the error message.

    Raises:
        ConfigError: The address is not available.
    """
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
            f"source {source}: cannot listen on {address[0]} port {address[1]} "
            f"({error.strerror}); set another address in `input`"
        ) from error
    made.setblocking(False)
    return made


_DATAGRAM_BYTES_MAX: Final = 1 << 16
_A_ROUND: Final = 1000  # datagrams
_SO_MEMINFO: Final = 55  # asm-generic/socket.h; Python has no name for it
DATAGRAM_KERNEL_BYTES: Final = 8 << 20  # requested; the system limits it to net.core.rmem_max
_MEMINFO: Final = struct.Struct(
    "=32xI"
)  # linux/sock_diag.h: SK_MEMINFO_DROPS is the ninth of its numbers


class SyslogDatagramInput:
    """Receives syslog messages as UDP datagrams on one address.

    A `SourceReceiver` calls its methods.

    Args:
        address: Host and port to listen on.
        message_bytes_max: Maximum length of a message in bytes. Longer messages are counted as
            lost.
        kernel_bytes: Size of the receive buffer to request from the kernel, in bytes.
    """

    loses_while_stopped = True
    is_caught_up = True
    has_end = False
    is_resumable = False

    def __init__(
        self,
        address: tuple[str, int],
        message_bytes_max: int,
        kernel_bytes: int = DATAGRAM_KERNEL_BYTES,
    ) -> None:
        self._bind_address, self._message_bytes_max = address, message_bytes_max
        self._kernel_bytes = kernel_bytes
        self._dropped = 0  # by the kernel, since the socket was opened

    def open(self, receiver: SourceReceiver) -> None:
        self._receiver = receiver
        self._socket = open_listener(self._bind_address, socket.SOCK_DGRAM, receiver.source)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._kernel_bytes)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        receiver.watch(self._socket.fileno(), ReadCallback(self._read, while_paused=True))
        _LOG.info(
            "source %s listens for syslog over UDP at %s port %d", receiver.source, *self.address
        )

    def tick(self, now_s: float) -> None:  # noqa: ARG002  # as `Input` has it
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
            self._receive_message(message)
        return False

    def _receive_message(self, message: bytes) -> None:
        losses, limit = self._receiver.losses, self._message_bytes_max
        if len(message) > limit:
            losses.add(
                f"messages longer than {limit} bytes (tailer.syslog.message_bytes_max)",
                lost_bytes=len(message),
            )
        elif self._receiver.is_paused:
            losses.add(
                "datagrams that arrived while the spool was full (tailer.spool.bytes_max)",
                lost_bytes=len(message),
            )
        else:
            self._receiver.receive(message_to_line(message))

    def _count_dropped(self) -> None:
        (count,) = _MEMINFO.unpack(
            self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        )
        if more := (count - self._dropped) % (1 << 32):
            self._receiver.losses.add(
                "datagrams dropped by the kernel because they arrived faster than they were read",
                unknown=more,
            )
        self._dropped = count


_GROUP: Final = "tailer.syslog.tls"


class ListenerTls:
    """The TLS certificates of one listener. They are reloaded when their files change.

    If a changed file cannot be loaded, a warning is logged and the previous certificates stay in
    use.

    Args:
        settings: Paths of the certificate, its key and the client CA.
        throttle: Logs each lasting problem once when it begins and once when it ends.

    Raises:
        ConfigError: A file cannot be loaded when the object is created.
    """

    def __init__(self, settings: SyslogTls, throttle: ConditionLog) -> None:
        self._settings, self._throttle = settings, throttle
        self._watched = WatchedFiles([settings.certificate, settings.key, settings.client_ca])
        self._context = _context(settings)

    def wrap(self, accepted: socket.socket) -> ssl.SSLSocket:
        """Wrap an accepted socket in TLS without blocking.

        The handshake takes place during the first reads. If the certificate files have changed,
        they are reloaded first.

        Args:
            accepted: The connected non-blocking TCP socket.

        Returns:
            The TLS socket.

        Raises:
            OSError: The peer has disconnected.
        """
        if self._watched.changed():
            try:
                self._context = _context(self._settings)
                self._throttle.resolve(_GROUP)
            except ConfigError as error:
                self._throttle.warn(_GROUP, f"{error}. The previous certificates remain in use")
        return self._context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)


def _context(settings: SyslogTls) -> ssl.SSLContext:
    assert settings.certificate is not None, "it is checked at the start"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= (
        ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    )  # a resumed session presents no certificate
    context.num_tickets = 0
    load_certificate(context, _GROUP, settings.certificate, settings.key)
    if settings.client_ca is not None:
        load_ca_certificates(context, f"{_GROUP}.client_ca", settings.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
