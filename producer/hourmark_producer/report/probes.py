"""Whether a tailer is healthy, and /metrics and /healthz over HTTP.

/metrics and /healthz of a tailer or a canary, over HTTP on loopback: there is no authentication,
and nothing but GET.

Whether a tailer is well: it looks at its files, its checkpoint takes what it writes, services hear
it and take what waits.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final, Protocol

from hourmark.clock import Clock
from hourmark.errors import HourmarkError
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.report.metrics import CONTENT_TYPE

_REQUEST_S: Final = 2.0  # for one request; another waits as long, so nobody can hold many threads
_LOG = logging.getLogger(__name__)


class Told(Protocol):
    """What is asked. Both may raise HourmarkError."""

    def exposition(self) -> bytes:
        """Of /metrics."""
        ...

    def unwell(self) -> list[str]:
        """Of /healthz: reasons."""
        ...


@contextlib.contextmanager
def answering(
    told: Told, host: str, port: int, named: str = "tailer.metrics_port"
) -> Iterator[int]:
    """Answer meanwhile; the port. With port 0 nothing is answered. A port that is taken is said,
    and is no reason to stop.

    `named`: who names the port, for messages.
    """
    if port == 0:
        yield 0
        return
    try:
        server = _Server((host, port), _handler(told))
    except OSError as error:
        _LOG.warning(
            "no metrics: %s = %d at %s cannot be opened (%s); name another, or 0 for none",
            named,
            port,
            host,
            error.strerror or error,
        )
        yield 0
        return
    _LOG.info("metrics at http://%s:%d/metrics, health at /healthz", host, server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, name="probes", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(HTTPServer):
    """One request at a time."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went, or said nothing: nothing to be done."""


def _handler(told: Told) -> type[BaseHTTPRequestHandler]:
    def metrics() -> tuple[int, str, bytes]:
        return 200, CONTENT_TYPE, told.exposition()

    def health() -> tuple[int, str, bytes]:
        reasons = told.unwell()
        return (
            503 if reasons else 200,
            "application/json",
            json.dumps({"well": not reasons, "reasons": reasons}).encode(),
        )

    answers: dict[str, Callable[[], tuple[int, str, bytes]]] = {
        "/metrics": metrics,
        "/healthz": health,
    }

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S
        server_version = "hourmark"
        sys_version = ""

        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            try:
                status, kind, content = (
                    answer() if answer else (404, "text/plain", b"/metrics or /healthz\n")
                )
            except HourmarkError as error:
                status, kind, content = 503, "text/plain; charset=utf-8", f"{error}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


CHECKPOINT_KEYS: Final = (
    "scan",
    "CheckpointFailed",
)  # of conditions: the checkpoint cannot be written
_MET_WITHIN_S: Final = 30.0


class Health:
    """What is asked from outside, from what the tailer's threads tell it.

    Safe to use from several threads.

    `unwell_s`: how long something may be at a standstill.
    """

    def __init__(self, clock: Clock, conditions: ConditionLog, unwell_s: float) -> None:
        self._clock = clock
        self._conditions = conditions
        self._unwell_s = unwell_s
        self._lock = threading.Lock()
        self._scanned_s = self._reported_s = self._moved_s = clock.monotonic_s()
        self._ranges = 0

    def scanned(self, ranges: int, *, waiting: bool) -> None:
        """There was a look at files.

        `ranges`: acknowledged so far; `waiting`: whether there is one that is not.
        """
        with self._lock:
            self._scanned_s = self._clock.monotonic_s()
            if not waiting or ranges != self._ranges:
                self._ranges, self._moved_s = ranges, self._scanned_s

    def reported(self) -> None:
        """A host report arrived."""
        with self._lock:
            self._reported_s = self._clock.monotonic_s()

    def reasons(self) -> list[str]:
        """Why it is not well; none where it is."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            standstills = (
                (
                    self._scanned_s,
                    "files were not looked at, or what was found could not be written down,",
                ),
                (self._reported_s, "no host report arrived at a delivery service"),
                (self._moved_s, "nothing was acknowledged, though something is on its way,"),
            )
            found = [
                f"{what} for {now_s - at_s:.0f} s"
                for at_s, what in standstills
                if now_s - at_s > self._unwell_s
            ]
        if self._conditions.occurred_within(CHECKPOINT_KEYS, _MET_WITHIN_S):
            found.append("the checkpoint cannot be written: is the disk full?")
        return found
