"""Rendering of a container's `hourmark.toml`, without I/O.

The settings are those of the local stack, changed where each component has its own host.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any, Final

from hourmark.config.groups import ServiceSettings
from hourmark.config.toml_text import render_toml
from hourmark_infra.containers.site import BALANCER, ContainerSite
from hourmark_infra.stack.config_file import stack_settings
from hourmark_infra.stack.layout import SERVICE
from hourmark_infra.stack.servers import Programs

USER: Final = "hourmark"  # of the processes, of HDFS and of PostgreSQL
TYPES: Final = Path("/opt/hourmark/examples/types")
LOGS: Final = Path("/var/log/app")
TAILER_PORT: Final = 8785  # metrics and health endpoint of the tailer
WATCH_PORT: Final = 8786  # metrics endpoint of the mirror's monitor
CANARY_PORT: Final = 8787  # metrics and health endpoint of the canary; metrics of its check
EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  # the container's own network
_OTHER_FILES: Final = 256  # open files that a delivery service needs in addition to connections
_HEAD = (
    "# Written when the container started: to change a setting, use the environment "
    "(HOURMARK_TAILER__SCAN_SECONDS=1).\n"
)


def render_settings(
    site: ContainerSite, home: Path, programs: Programs, role: str, shared: Path, files: int
) -> str:
    """Render the configuration file `hourmark.toml` for one container.

    The caller writes the file each time the container starts. Users change settings with
    environment variables instead of this file.

    Args:
        site: Number and addresses of the site's servers.
        home: The `HOURMARK_HOME` folder of the container.
        programs: Programs that run the servers.
        role: Role of the container, which is also its host name.
        shared: Folder of the volume that all containers share, which contains certificates and the
            password of the ledger (the database of the ETL).
        files: Maximum number of open files per process, or `resource.RLIM_INFINITY`.
    """
    layout = site.layout(home)
    settings = stack_settings(layout, programs, USER, site.bucket_seconds)
    for group, more in _container_settings(
        site, layout.ports[SERVICE], role, shared, files
    ).items():
        settings.setdefault(group, {}).update(more)
    return _HEAD + render_toml(settings)


def connection_limit(files: int) -> int:
    """Return the highest value of `service.connections_max` that an open-files limit permits.

    Some container engines only allow 1,024 open files, which is not enough for the default value.

    Args:
        files: Maximum number of open files per process, or `resource.RLIM_INFINITY`.

    Returns:
        The default value of the setting, or `files - 256` if that is lower.
    """
    return (
        ServiceSettings().connections_max
        if files == resource.RLIM_INFINITY
        else min(ServiceSettings().connections_max, files - _OTHER_FILES)
    )


def _container_settings(
    site: ContainerSite, port: int, role: str, shared: Path, files: int
) -> dict[str, dict[str, Any]]:
    # Traffic between containers crosses a network, so both sides present TLS certificates.
    tls = shared / "tls"
    client = {"ca": str(tls / "ca.pem"), "certificate": str(tls / "client.pem")}
    return {
        "mirror": {
            "rest_host": role,
            "workers": site.mirrors,
            "metrics_host": EVERY_ADDRESS,
        },
        "etl": {
            "metrics_host": EVERY_ADDRESS,
            "ledger": f"postgresql://{USER}:${{file:{shared / 'ledger-password'}}}@postgres/{USER}",
        },
        "service": {
            "host": EVERY_ADDRESS,
            "tls": {"certificate": str(tls / "service.pem"), "client_ca": str(tls / "ca.pem")},
            "connections_max": connection_limit(files),
        },
        "tailer": {
            "service_urls": [f"https://{BALANCER}:{port}"],
            "tls": client,
            "host_name": "application",
            "metrics_host": EVERY_ADDRESS,
            "metrics_port": TAILER_PORT,
            "sources": [{"name": "app", "paths": [str(LOGS / "*.log*")]}],
        },
        "types": {"dir": str(TYPES)},
    }
