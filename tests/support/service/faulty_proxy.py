"""An HTTP proxy between a client and a service that damages exchanges by a script.

Each request takes the next step of the script, and is passed on unchanged when the script has
ended. A step gets an `Exchange`, with which it forwards, answers or cuts the request.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: close with RST
_HOP_BY_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Reply(NamedTuple):
    """A response of the service, or one that a step makes up."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class Seen(NamedTuple):
    """A request that reached the proxy. `status` is what its client received, 0 for a cut."""

    path: str
    key: str
    body: bytes
    status: int


class Exchange:
    """One request of a client, which a step of the script decides about."""

    def __init__(self, handler: http.server.BaseHTTPRequestHandler, body: bytes, port: int) -> None:
        self._handler = handler
        self._body = body
        self._port = port
        self.status = 0

    def forward(self) -> Reply:
        """Send the request to the service, and return its complete response."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            handler = self._handler
            connection.request(handler.command, handler.path, self._body, dict(handler.headers))
            response = connection.getresponse()
            return Reply(response.status, response.getheaders(), response.read())
        finally:
            connection.close()

    def forward_half(self) -> None:
        """Send the service only half of the body, and end the connection."""
        headers = "".join(f"{name}: {value}\r\n" for name, value in self._handler.headers.items())
        head = f"{self._handler.command} {self._handler.path} HTTP/1.1\r\n{headers}\r\n"
        with socket.create_connection(("127.0.0.1", self._port), timeout=30) as service:
            service.sendall(head.encode() + self._body[: len(self._body) // 2])

    def reply(self, reply: Reply, *, body_bytes: int | None = None) -> None:
        """Send a response to the client; with `body_bytes`, cut it after so many of its body."""
        handler = self._handler
        handler.send_response(reply.status)
        for name, value in reply.headers:
            if name.lower() not in _HOP_BY_HOP:
                handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body[:body_bytes])
        if body_bytes is None:
            self.status = reply.status
        else:
            self.cut()

    def cut(self) -> None:
        """Reset the connection to the client."""
        handler = self._handler
        handler.wfile.flush()
        handler.close_connection = True
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


Step = Callable[[Exchange], None]


def pass_on(exchange: Exchange) -> None:
    """Change nothing."""
    exchange.reply(exchange.forward())


def cut_before_request(exchange: Exchange) -> None:
    """The service never sees the request."""
    exchange.cut()


def cut_during_request(exchange: Exchange) -> None:
    """The service sees half of the request."""
    exchange.forward_half()
    exchange.cut()


def lose_response(exchange: Exchange) -> None:
    """The service processes the request, and its client never knows."""
    assert exchange.forward().status == 200
    exchange.cut()


def cut_during_response(exchange: Exchange) -> None:
    """The client receives half of the body of a response with status 200."""
    reply = exchange.forward()
    assert reply.status == 200
    exchange.reply(reply, body_bytes=len(reply.body) // 2)


def answer(status: int, body: str = "<html>", **headers: str) -> Step:
    """A step that answers without the service, as another proxy or load balancer does."""
    made = Reply(status, [(k.replace("_", "-"), v) for k, v in headers.items()], body.encode())
    return lambda exchange: exchange.reply(made)


def problem(status: int, code: str, retry_after_s: int) -> Step:
    """A step that answers with a problem of the service's form and `Retry-After`."""
    body = {"status": status, "code": code, "detail": "injected", "next_step": "send it again"}
    return answer(
        status,
        json.dumps(body),
        Retry_After=str(retry_after_s),
        Content_Type="application/problem+json",
    )


class FaultyProxy:
    """The running proxy: its address, and what it has seen, in the order of its decisions."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[Seen] = []


@contextlib.contextmanager
def faulty_proxy(
    port: int, script: Sequence[Step] = (), then: Step = pass_on
) -> Iterator[FaultyProxy]:
    """Run a proxy in front of the service at this port; `then` follows when the script has ended."""
    steps = iter(script)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            exchange = Exchange(self, body, port)
            try:
                next(steps, then)(exchange)
            finally:
                key = self.headers.get("Idempotency-Key", "")
                proxy.seen.append(Seen(self.path, key, body, exchange.status))

        def log_message(self, *_: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def shutdown_request(self, request: Any) -> None:
            self.close_request(request)  # without shutdown(): a cut ends with RST, not FIN

    server = Server(("127.0.0.1", 0), Handler)
    proxy = FaultyProxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
