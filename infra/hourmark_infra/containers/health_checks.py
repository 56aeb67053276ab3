"""Health checks of the containers.

Servers are checked as in the local stack; Hourmark's daemons through their own HTTP endpoints.
"""

from __future__ import annotations

import ssl
from typing import Final

import httpx

from hourmark_infra.containers.roles import WORKER_WEB_PORT, Container, role_kind
from hourmark_infra.containers.settings import CANARY_PORT, LOGS, TAILER_PORT, WATCH_PORT
from hourmark_infra.containers.site import SPARK_PORT
from hourmark_infra.stack.health import Health, accepts_connections, check_mirror
from hourmark_infra.stack.layout import METRICS, SERVICE

_ANSWER_S: Final = 5.0
_SILENT_MS: Final = 60_000  # after this time without a new line, the application is unhealthy


def check_role(container: Container) -> Health:
    """Check the health of the program that this container runs.

    The container's name is its role, such as `edge-1` (a Kafka broker), and determines the check.
    Call the function inside the container, because some programs only listen on its loopback
    interface.

    Args:
        container: The container in which this process runs.

    Returns:
        The health of the program, with details. Unhealthy if the role has no health check.

    Raises:
        UsageError: The container's name is not a role.
        FileNotFoundError: The container runs a server, but the role `setup` has not created the
            site's files yet.
    """
    kind, ports = role_kind(container.name), container.layout.ports
    if kind == "mirror":
        return check_mirror(f"{container.name}:{ports['mirror-rest']}")
    if kind == "mirror-watch":
        return _check_http(f"http://127.0.0.1:{WATCH_PORT}/metrics")
    if kind in ("canary", "canary-check"):
        return _check_http(
            f"http://127.0.0.1:{CANARY_PORT}/{'healthz' if kind == 'canary' else 'metrics'}"
        )
    if kind == "delivery":
        return _check_http(
            f"https://localhost:{ports[SERVICE]}/readyz", _client_ssl_context(container)
        )
    if kind == "tailer":
        return _check_http(f"http://127.0.0.1:{TAILER_PORT}/healthz")
    if kind == "etl":
        return _check_http(f"http://127.0.0.1:{ports[METRICS]}/metrics")
    if kind == "spark-master":
        return _check_listening(f"{container.name}:{SPARK_PORT}")
    if kind == "spark-worker":
        return _check_listening(f"{container.name}:{WORKER_WEB_PORT}")
    if kind == "application":
        return _check_application_log(container)
    server = container.server()
    return (
        Health(False, f"the role {container.name} has no health check")
        if server is None
        else server.check_health()
    )


def _check_http(url: str, verify: ssl.SSLContext | bool = True) -> Health:
    try:
        answer = httpx.get(url, verify=verify, timeout=_ANSWER_S, trust_env=False)
    except httpx.HTTPError as error:
        return Health(False, f"no response from {url}: {error}")
    return Health(answer.is_success, f"{url} answers {answer.status_code}")


def _client_ssl_context(container: Container) -> ssl.SSLContext:
    tls = container.shared / "tls"
    context = ssl.create_default_context(cafile=tls / "ca.pem")
    context.load_cert_chain(tls / "client.pem")
    return context


def _check_listening(address: str) -> Health:
    return (
        Health(True, f"{address} listens")
        if accepts_connections(address)
        else Health(False, f"{address} does not listen")
    )


def _check_application_log(container: Container) -> Health:
    newest_ms = max(
        (path.stat().st_mtime_ns // 1_000_000 for path in LOGS.glob("app.log")), default=0
    )
    silent_ms = container.clock.now_ms() - newest_ms
    return Health(
        silent_ms < _SILENT_MS,
        f"logged {silent_ms / 1000:.0f} s ago" if newest_ms else "has not logged yet",
    )
