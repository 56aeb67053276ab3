"""HTTP/1.1 to a few services over connections that are kept open, by the standard library's client.

A larger client took more CPU for a range than compressing half of it, and this needs none of what it can do more: no redirects,
no proxies, no cookies. An idle connection that its service has closed meanwhile is not used again; one whose certificates were
replaced ends after the request that is under way on it. The number of idle ones is that of threads that ask at the same time.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import select
import socket
import ssl
import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 1 << 20  # answers are some hundred bytes
PROBLEMS: Final = (OSError, http.client.HTTPException)  # what `Connections.ask` raises


class Answer(NamedTuple):
    """A response, whatever its status."""

    status: int
    reason: str
    headers: Mapping[str, str]  # case-insensitive
    content: bytes


class Address(NamedTuple):
    """Where a service is. `prefix`: what its paths begin with."""

    is_tls: bool
    host: str
    port: int
    prefix: str
    headers: tuple[tuple[str, str], ...] = ()  # what a user in the URL comes to
    at: str = ""  # which of the host's addresses; empty: any

    @classmethod
    def of(cls, url: str) -> Address:
        """ValueError where it is no http:// or https:// URL with a host."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("a URL of a service is http://host:port or https://host:port")
        headers: tuple[tuple[str, str], ...] = ()
        if parts.username is not None:
            user = ":".join(map(unquote, (parts.username, parts.password or "")))
            headers = (("Authorization", "Basic " + base64.b64encode(user.encode()).decode()),)
        is_tls = parts.scheme == "https"
        return cls(is_tls, parts.hostname, parts.port or (443 if is_tls else 80), parts.path.rstrip("/"), headers)

    @property
    def is_literal(self) -> bool:
        """Whether the host is an address already, and no name."""
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return True


class _Kept(NamedTuple):
    tls: ssl.SSLContext
    connection: http.client.HTTPConnection


class Connections:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: defaultdict[Address, list[_Kept]] = defaultdict(list)
        self._closed = False

    def close(self) -> None:
        """Close the idle ones; those in use are closed after it."""
        with self._lock:
            self._closed = True
            idle = [kept for several in self._idle.values() for kept in several]
            self._idle.clear()
        for kept in idle:
            kept.connection.close()

    def ask(
        self, address: Address, method: str, path: str, headers: Mapping[str, str], content: bytes, *,
        timeout_s: float, tls: ssl.SSLContext,
    ) -> Answer:  # fmt: skip
        """One request and its answer. OSError, HTTPException: there is none, and whether it arrived is not known."""
        kept = self._take(address, tls) or _Kept(tls, _connected(address, min(timeout_s, CONNECT_TIMEOUT_S), tls))
        connection, is_kept = kept.connection, False
        try:
            connection.sock.settimeout(timeout_s)
            connection.request(method, address.prefix + path, content or None, {**headers, **dict(address.headers)})
            response = connection.getresponse()
            if response.length is None and not response.chunked:
                raise http.client.HTTPException("an answer that does not say where it ends may be half of one")
            if response.length is not None and response.length > ANSWER_BYTES_MAX:
                raise http.client.HTTPException(f"an answer of {response.length} bytes is none of a delivery service")
            answer = Answer(response.status, response.reason, response.headers, response.read())  # type: ignore[arg-type]
            is_kept = connection.sock is not None  # it is closed where the answer says so
        finally:
            if not (is_kept and self._keep(address, kept)):
                connection.close()
        return answer

    def _take(self, address: Address, tls: ssl.SSLContext) -> _Kept | None:
        while True:
            with self._lock:
                kept = self._idle[address].pop() if self._idle[address] else None
            if kept is None or (kept.tls is tls and not _has_news(kept.connection.sock)):
                return kept
            kept.connection.close()

    def _keep(self, address: Address, kept: _Kept) -> bool:
        with self._lock:
            if not self._closed:
                self._idle[address].append(kept)
            return not self._closed


def _connected(address: Address, timeout_s: float, tls: ssl.SSLContext) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    connection.auto_open = 0  # a request goes over this connection, or not at all
    if address.is_tls:
        connection.default_port = http.client.HTTPS_PORT
    plain = socket.create_connection((address.at or address.host, address.port), timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sock = tls.wrap_socket(plain, server_hostname=address.host) if address.is_tls else plain
    except BaseException:
        plain.close()
        raise
    return connection


def _has_news(connection: socket.socket) -> bool:
    """Whether something came that nobody asked for: mostly, that the service closed it."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
