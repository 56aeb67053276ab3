"""HTTP/1.1 requests over pooled connections to a few delivery services.

The module has no redirects, proxies or cookies: a general HTTP client used more CPU time per range
than compressing half of it. `ConnectionPool.send` returns once the request is sent, so a thread can
have several requests in flight. An idle connection that its service has closed is not reused, and a
connection that was opened with replaced certificates ends after its current request. The pool holds
as many idle connections as there were concurrent requests.
"""

from __future__ import annotations

import base64
import functools
import http.client
import io
import ipaddress
import select
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

CONNECT_TIMEOUT_S: Final = 5.0
_LEAST_S: Final = 0.001  # a response that has arrived is read even after the deadline
ANSWER_BYTES_MAX: Final = 1 << 20  # responses have some hundred bytes
TRANSPORT_ERRORS: Final = (OSError, http.client.HTTPException)  # what `Connections.ask` raises


class HttpResponse(NamedTuple):
    """A complete HTTP response with any status, including errors.

    Attributes:
        status: Status code.
        reason: Reason phrase.
        headers: Header fields. Names are case-insensitive.
        content: The body, at most `ANSWER_BYTES_MAX` bytes.
    """

    status: int
    reason: str
    headers: Mapping[str, str]  # case-insensitive
    content: bytes


class ServiceAddress(NamedTuple):
    """The network address of a delivery service.

    Attributes:
        is_tls: Whether the URL begins with https://.
        host: Host name or IP address in the URL.
        port: TCP port; 80 or 443 if the URL has none.
        prefix: Path in the URL, which is the prefix of every request path.
        headers: Header fields for every request, derived from the user and password in the URL.
        ip: IP address to connect to. If empty, `host` is resolved for each connection.
    """

    is_tls: bool
    host: str
    port: int
    prefix: str
    headers: tuple[tuple[str, str], ...] = ()  # from a user and password in the URL
    ip: str = ""  # which of the host's addresses; empty for any

    @classmethod
    def from_url(cls, url: str) -> ServiceAddress:
        """Parse the URL of a delivery service.

        Args:
            url: URL such as `https://user:password@host:8443/path`. Only scheme and host are
                required.

        Returns:
            The address, with an empty `ip`.

        Raises:
            ValueError: The text is not an http:// or https:// URL with a host, or it has a query or
                fragment.
        """
        parts = urlsplit(url)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.query
            or parts.fragment
        ):
            raise ValueError("a service URL must be http://host:port or https://host:port")
        headers: tuple[tuple[str, str], ...] = ()
        if parts.username is not None:
            user = ":".join(map(unquote, (parts.username, parts.password or "")))
            headers = (("Authorization", "Basic " + base64.b64encode(user.encode()).decode()),)
        is_tls = parts.scheme == "https"
        return cls(
            is_tls,
            parts.hostname,
            parts.port or (443 if is_tls else 80),
            parts.path.rstrip("/"),
            headers,
        )

    @property
    def is_ip_literal(self) -> bool:
        """Return whether the host is an IP address, which need not be resolved."""
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return True


class _PooledConnection(NamedTuple):
    tls: ssl.SSLContext
    connection: socket.socket


class _DeadlineReader(io.RawIOBase):
    # one deadline for the whole response
    def __init__(self, connection: socket.socket, until_s: float) -> None:
        self._connection, self._until_s = connection, until_s

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any, /) -> int:
        self._connection.settimeout(max(_LEAST_S, self._until_s - time.monotonic()))
        return self._connection.recv_into(room)


class PendingResponse:
    """The pending response to an HTTP request that was sent.

    `ConnectionPool.send` returns it. The caller must call `result` exactly once, which also
    releases the connection.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        address: ServiceAddress,
        kept: _PooledConnection,
        method: str,
        until_s: float,
    ) -> None:
        self._connections, self._address, self._kept, self._method = (
            connections,
            address,
            kept,
            method,
        )
        self._until_s = until_s

    def fileno(self) -> int:
        """Return the socket's file descriptor, for use with poll(2).

        It becomes readable when the response arrives or the connection is closed.
        """
        return self._kept.connection.fileno()

    def result(self) -> HttpResponse:
        """Wait for the complete response, and return the connection to the pool or close it.

        Returns:
            The response, with any status.

        Raises:
            OSError: The connection failed or the deadline passed. The service may have received the
                request.
            http.client.HTTPException: The response is invalid or too large.
        """
        is_kept = False
        try:
            coming = _DeadlineReader(self._kept.connection, self._until_s)
            with http.client.HTTPResponse(coming, method=self._method) as response:  # type: ignore[arg-type]
                response.begin()
                if response.length is None and not response.chunked:
                    raise http.client.HTTPException(
                        "the response has neither a length nor chunks, so it may be incomplete"
                    )
                if response.length is not None and response.length > ANSWER_BYTES_MAX:
                    raise http.client.HTTPException(
                        f"a response of {response.length} bytes is too large for a delivery service"
                    )
                content = response.read(ANSWER_BYTES_MAX + 1 if response.chunked else None)
                if len(content) > ANSWER_BYTES_MAX:
                    raise http.client.HTTPException(
                        f"a response of more than {ANSWER_BYTES_MAX} bytes is too large "
                        "for a delivery service"
                    )
                answer = HttpResponse(response.status, response.reason, response.headers, content)  # type: ignore[arg-type]
                is_kept = not response.will_close
        finally:
            if not (is_kept and self._connections.return_connection(self._address, self._kept)):
                self._kept.connection.close()
        return answer


class ConnectionPool:
    """A pool of keep-alive HTTP/1.1 connections to delivery services. Thread-safe.

    A new connection is opened if no idle one can be used. An idle connection that the service has
    closed is discarded.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: defaultdict[ServiceAddress, list[_PooledConnection]] = defaultdict(list)
        self._closed = False

    def close(self) -> None:
        """Close the pool and its idle connections.

        A connection in use is closed after its current request.
        """
        with self._lock:
            self._closed = True
            idle = [kept for several in self._idle.values() for kept in several]
            self._idle.clear()
        for kept in idle:
            kept.connection.close()

    def request(
        self,
        address: ServiceAddress,
        method: str,
        path: str,
        headers: Mapping[str, str],
        content: bytes,
        *,
        timeout_s: float,
        tls: ssl.SSLContext,
    ) -> HttpResponse:
        """Send one request and wait for its response.

        Args:
            address: Address of the service.
            method: HTTP method.
            path: Request path, without the prefix of the address.
            headers: Header fields, in addition to those of the address.
            content: Request body; empty for none.
            timeout_s: Time limit in seconds for sending, and again for the whole response.
            tls: TLS settings for https:// addresses.

        Returns:
            The response, with any status.

        Raises:
            OSError: The connection failed or a time limit passed. The service may have received the
                request.
            http.client.HTTPException: The response is invalid or too large.
            ValueError: A header value contains a line break.
        """
        return self.send(
            address, method, path, headers, content, timeout_s=timeout_s, tls=tls
        ).result()

    def send(
        self,
        address: ServiceAddress,
        method: str,
        path: str,
        headers: Mapping[str, str],
        content: bytes,
        *,
        timeout_s: float,
        tls: ssl.SSLContext,
    ) -> PendingResponse:
        """Send one request without waiting for its response.

        Args:
            address: Address of the service.
            method: HTTP method.
            path: Request path, without the prefix of the address.
            headers: Header fields, in addition to those of the address.
            content: Request body.
            timeout_s: Time limit in seconds for sending, and again for the whole response.
            tls: TLS settings for https:// addresses.

        Returns:
            The pending response. The caller must call its method `result` exactly once.

        Raises:
            OSError: The request could not be sent completely. The service may have received it.
            ValueError: A header value contains a line break.
        """
        kept = self._take(address, tls) or _PooledConnection(
            tls, _connected(address, min(timeout_s, CONNECT_TIMEOUT_S), tls)
        )
        try:
            kept.connection.settimeout(timeout_s)
            _send(
                kept.connection,
                _head(address, method, path, {**headers, **dict(address.headers)}, len(content)),
                content,
            )
        except ConnectionError:
            if not _is_readable(kept.connection):
                kept.connection.close()
                raise  # else the service refused the incomplete request and sent a response
        except BaseException:
            kept.connection.close()
            raise
        return PendingResponse(self, address, kept, method, time.monotonic() + timeout_s)

    def _take(self, address: ServiceAddress, tls: ssl.SSLContext) -> _PooledConnection | None:
        while True:
            with self._lock:
                kept = self._idle[address].pop() if self._idle[address] else None
            if kept is None:
                self._drop_closed()
            if kept is None or (kept.tls is tls and not _is_readable(kept.connection)):
                return kept
            kept.connection.close()

    def _drop_closed(self) -> None:
        with self._lock:  # connections to addresses that are no longer used, too
            closed = [
                (several, kept)
                for several in self._idle.values()
                for kept in several
                if _is_readable(kept.connection)
            ]
            for several, kept in closed:
                several.remove(kept)
        for _, kept in closed:
            kept.connection.close()

    def return_connection(self, address: ServiceAddress, connection: _PooledConnection) -> bool:
        """Return a connection to the pool, so that later requests can use it.

        Args:
            address: Address of the service.
            connection: A connection to this service without a pending response.

        Returns:
            True if the pool keeps the connection. False if the pool is closed; the caller must then
            close the connection.
        """
        with self._lock:
            if not self._closed:
                self._idle[address].append(connection)
            return not self._closed


@functools.lru_cache(maxsize=64)
def _request_prefix(address: ServiceAddress, method: str, path: str) -> str:
    kind = http.client.HTTPSConnection if address.is_tls else http.client.HTTPConnection
    client, written = kind(address.host, address.port), bytearray()
    client.sock = _RecordingSocket(written)
    client.putrequest(method, address.prefix + path)
    client.endheaders()
    return written.decode("latin-1").removesuffix("\r\n")


class _RecordingSocket:
    def __init__(self, into: bytearray) -> None:
        self.sendall = into.extend


def _head(
    address: ServiceAddress, method: str, path: str, headers: Mapping[str, str], count: int
) -> bytes:
    if any("\n" in value or "\r" in value for value in headers.values()):
        raise ValueError("a request header contains an end of line")
    length = f"Content-Length: {count}\r\n" if count or method == "POST" else ""
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{_request_prefix(address, method, path)}{length}{fields}\r\n".encode("latin-1")


def _send(connection: socket.socket, head: bytes, content: bytes) -> None:
    if isinstance(connection, ssl.SSLSocket):
        connection.sendall(head)
        connection.sendall(content)
        return
    sent = connection.sendmsg((head, content))  # one system call, and no copy of the body
    if sent < len(head):
        connection.sendall(head[sent:])
        sent = len(head)
    if sent < len(head) + len(content):
        connection.sendall(memoryview(content)[sent - len(head) :])


def _connected(address: ServiceAddress, timeout_s: float, tls: ssl.SSLContext) -> socket.socket:
    plain = socket.create_connection((address.ip or address.host, address.port), timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return tls.wrap_socket(plain, server_hostname=address.host) if address.is_tls else plain
    except BaseException:
        plain.close()
        raise


def _is_readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
