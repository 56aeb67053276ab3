"""The HTTP endpoints /metrics and /healthz of a tailer or canary, and the health of a tailer.

The server accepts only GET requests and has no authentication, so it listens on loopback unless
configured otherwise. A tailer is healthy if it scans its files, its checkpoint can be written, host
reports are delivered, and pending ranges are acknowledged.
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

_REQUEST_S: Final = (
    2.0  # per request; requests are handled one at a time, so no client can occupy many threads
)
_LOG = logging.getLogger(__name__)


class ProbeTarget(Protocol):
    """Interface of a process that serves the endpoints /metrics and /healthz.

    If a method raises HourmarkError, the response has status 503.
    """

    def render_metrics(self) -> bytes:
        """Return the body of the response to `/metrics`, in the Prometheus text format."""
        ...

    def unhealthy_reasons(self) -> list[str]:
        """Return the reasons why `/healthz` must report the process as unhealthy.

        Returns:
            One message per reason; an empty list if the process is healthy.
        """
        ...


@contextlib.contextmanager
def serve_probes(
    target: ProbeTarget, host: str, port: int, setting: str = "tailer.metrics_port"
) -> Iterator[int]:
    """Return a context manager that serves /metrics and /healthz in a background thread.

    If the port is in use, a warning is logged and nothing is served.

    Args:
        target: The process whose metrics and health are served.
        host: Address to listen on.
        port: Port to listen on; 0 to serve nothing.
        setting: Name of the setting or option that defines the port, used in log messages.

    Yields:
        The port on which the server listens; 0 if nothing is served.
    """
    if port == 0:
        yield 0
        return
    try:
        server = _Server((host, port), _handler(target))
    except OSError as error:
        _LOG.warning(
            "metrics are not served: cannot listen on port %s = %d at %s (%s); set another "
            "port, or 0 to disable metrics",
            setting,
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
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def _handler(target: ProbeTarget) -> type[BaseHTTPRequestHandler]:
    def metrics() -> tuple[int, str, bytes]:
        return 200, CONTENT_TYPE, target.render_metrics()

    def health() -> tuple[int, str, bytes]:
        reasons = target.unhealthy_reasons()
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
)  # keys of the conditions for a checkpoint that cannot be written
_MET_WITHIN_S: Final = 30.0


class TailerHealth:
    """Determines whether a running tailer is healthy, from the progress that its threads record.

    Thread-safe.

    Args:
        clock: Clock of this host.
        conditions: Log of ongoing conditions, which are problems that last for some time.
        stall_limit_s: Seconds without progress after which the tailer is unhealthy.
    """

    def __init__(self, clock: Clock, conditions: ConditionLog, stall_limit_s: float) -> None:
        self._clock = clock
        self._conditions = conditions
        self._stall_limit_s = stall_limit_s
        self._lock = threading.Lock()
        self._scanned_s = self._reported_s = self._moved_s = clock.monotonic_s()
        self._ranges = 0

    def record_scan(self, ranges: int, *, waiting: bool) -> None:
        """Record that a scan of the files has finished.

        Args:
            ranges: Number of ranges acknowledged since the start.
            waiting: Whether a range is waiting for its acknowledgement.
        """
        with self._lock:
            self._scanned_s = self._clock.monotonic_s()
            if not waiting or ranges != self._ranges:
                self._ranges, self._moved_s = ranges, self._scanned_s

    def record_report(self) -> None:
        """Record that a host report (a periodic status message) was delivered to a service."""
        with self._lock:
            self._reported_s = self._clock.monotonic_s()

    def unhealthy_reasons(self) -> list[str]:
        """Return the reasons why the tailer is unhealthy.

        The tailer is unhealthy if, for `stall_limit_s` seconds, no scan finished, no host report
        was delivered, or no pending range was acknowledged. It is also unhealthy if the checkpoint
        could not be written recently.

        Returns:
            One message per reason; an empty list if the tailer is healthy.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            standstills = (
                (
                    self._scanned_s,
                    "files were not scanned, or the result could not be recorded,",
                ),
                (self._reported_s, "no host report was delivered"),
                (self._moved_s, "nothing was acknowledged although ranges are pending"),
            )
            found = [
                f"{what} for {now_s - at_s:.0f} s"
                for at_s, what in standstills
                if now_s - at_s > self._stall_limit_s
            ]
        if self._conditions.occurred_within(CHECKPOINT_KEYS, _MET_WITHIN_S):
            found.append("the checkpoint cannot be written: check that the disk is not full")
        return found
