"""A proxy for HTTP on loopback that loses requests or responses on order."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal
from urllib.parse import urlsplit

from tests.support.http_server import Answering, serving

Loss = Literal["dropped", "lost", "unavailable", "error after"]
LOSSES: Final[tuple[Loss, ...]] = (
    "dropped",  # not executed, and no response
    "lost",  # executed, and the connection ends without a response
    "unavailable",  # not executed, and answered with 503
    "error after",  # executed, and answered with 500
)
_CHANGES: Final = ("PUT", "POST", "DELETE")
_KEPT_BY_HOP: Final = ("connection", "transfer-encoding", "content-length")


class LossyProxy:
    """What happens to requests that change something; they are counted from 1."""

    def __init__(self) -> None:
        self.address = ""
        self.changes: list[str] = []
        self._losses: dict[int, Loss] = {}
        self._lock = threading.Lock()

    def lose(self, losses: dict[int, Loss]) -> None:
        """Count anew, and lose these."""
        with self._lock:
            self.changes, self._losses = [], dict(losses)

    def next_loss(self, command: str, path: str) -> Loss | None:
        """Count a request, and say what becomes of it."""
        if command not in _CHANGES:
            return None
        with self._lock:
            self.changes.append(f"{command} {path}")
            return self._losses.pop(len(self.changes), None)


@contextmanager
def lossy_proxy(server: str) -> Iterator[LossyProxy]:
    """In front of this server, a URL."""
    proxy, target = LossyProxy(), urlsplit(server).netloc

    class Handler(Answering):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            self.close_connection = True  # else the end of the proxy waits for idle clients
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            loss = proxy.next_loss(self.command, self.path)
            if loss == "dropped":
                return
            if loss == "unavailable":
                self.answer(503, b"")
                return
            connection = http.client.HTTPConnection(target, timeout=30)
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():  # with the host that was signed
                if name.lower() != "connection":
                    connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            content = response.read()
            connection.close()
            if loss == "lost":
                return
            if loss == "error after":
                self.answer(500, b"")
                return
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _KEPT_BY_HOP:
                    self.send_header(name, value)
            size = response.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", size or str(len(content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward

    with serving(Handler) as address:
        proxy.address = f"http://{address}"
        yield proxy
