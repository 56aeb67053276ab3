"""What a health check asks a role: servers in the words of the local stack, Hourmark's own daemons
by their own answers.
"""

from __future__ import annotations

import ssl
from typing import Final

from hourmark_infra.containers.roles import WORKER_WEB_PORT, Container, kind_of
from hourmark_infra.containers.settings import CANARY_PORT, LOGS, TAILER_PORT, WATCH_PORT
from hourmark_infra.containers.site import SPARK_PORT
from hourmark_infra.stack.health import Health, of_mirror, of_port, of_url
from hourmark_infra.stack.layout import METRICS, SERVICE

_SILENT_MS: Final = 60_000  # a program that logs has not logged for so long


def ask(container: Container) -> Health:
    """How the role of this container stands; asked from within it."""
    kind, ports = kind_of(container.name), container.layout.ports
    if kind == "mirror":
        return of_mirror(f"{container.name}:{ports['mirror-rest']}")
    if kind == "mirror-watch":
        return of_url(f"http://127.0.0.1:{WATCH_PORT}/metrics")
    if kind in ("canary", "canary-check"):
        return of_url(
            f"http://127.0.0.1:{CANARY_PORT}/{'healthz' if kind == 'canary' else 'metrics'}"
        )
    if kind == "delivery":
        return of_url(f"https://localhost:{ports[SERVICE]}/readyz", _certificates(container))
    if kind == "tailer":
        return of_url(f"http://127.0.0.1:{TAILER_PORT}/healthz")
    if kind == "etl":
        return of_url(f"http://127.0.0.1:{ports[METRICS]}/metrics")
    if kind == "spark-master":
        return of_port(f"{container.name}:{SPARK_PORT}")
    if kind == "spark-worker":
        return of_port(f"{container.name}:{WORKER_WEB_PORT}")
    if kind == "application":
        return _logs(container)
    server = container.server()
    return (
        Health(False, f"the role {container.name} has no health")
        if server is None
        else server.ask()
    )


def _certificates(container: Container) -> ssl.SSLContext:
    tls = container.shared / "tls"
    context = ssl.create_default_context(cafile=tls / "ca.pem")
    context.load_cert_chain(tls / "client.pem")
    return context


def _logs(container: Container) -> Health:
    newest_ms = max(
        (path.stat().st_mtime_ns // 1_000_000 for path in LOGS.glob("app.log")), default=0
    )
    silent_ms = container.clock.now_ms() - newest_ms
    return Health(
        silent_ms < _SILENT_MS,
        f"logged {silent_ms / 1000:.0f} s ago" if newest_ms else "has not logged yet",
    )
