"""Prometheus' text over HTTP, for rooms that have prometheus_client: only they import this
module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from prometheus_client import CollectorRegistry, start_http_server

_LOG = logging.getLogger(__name__)


def serve_metrics(
    registry: CollectorRegistry, group: str, host: str, port: int
) -> Callable[[], None]:
    """Answer GET /metrics in a thread of its own until what is returned is called; port 0: not at
    all.

    `group`: of the settings that name host and port. A port that is taken is said, and no reason to
    stop.
    """
    if port == 0:
        return lambda: None
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        _LOG.warning(
            "no metrics: %s.metrics_port = %d on %s.metrics_host = %s cannot be opened "
            "(%s); name another, or 0 for none",
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
