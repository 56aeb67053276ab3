"""HTTP server for Prometheus metrics, for components that have prometheus_client."""

from __future__ import annotations

import logging
from collections.abc import Callable

from prometheus_client import CollectorRegistry, start_http_server

_LOG = logging.getLogger(__name__)


def serve_metrics(
    registry: CollectorRegistry, group: str, host: str, port: int
) -> Callable[[], None]:
    """Serve Prometheus metrics over HTTP at `/metrics` from a background thread.

    If the port cannot be opened, a warning is logged and nothing is served.

    Args:
        registry: The metrics.
        group: Name of the settings group with `metrics_host` and `metrics_port`, for log messages.
        host: Address to listen on.
        port: Port to listen on; 0 disables the server.

    Returns:
        A function that stops the server. It has no effect if nothing is served.
    """
    if port == 0:
        return lambda: None
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        _LOG.warning(
            "metrics are not served: cannot listen on %s.metrics_port = %d at %s.metrics_host = "
            "%s (%s); set another port, or 0 to disable metrics",
            group,
            port,
            group,
            host,
            error.strerror,
        )
        return lambda: None
    _LOG.info("metrics at http://%s:%d/metrics", host, port)

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return stop
