"""`hourmark.toml` of one container: the local stack's, with what differs where each component has a
host of its own. Pure.
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
TAILER_PORT: Final = 8785  # its metrics and health
WATCH_PORT: Final = 8786  # of the mirror's watch, for its metrics
CANARY_PORT: Final = 8787  # likewise, and of its check the metrics
_OTHER_FILES: Final = 256  # of a service, beside its connections
_HEAD = (
    "# Written when the container started: to change a setting, use the environment "
    "(HOURMARK_TAILER__SCAN_SECONDS=1).\n"
)


def render_settings(
    site: ContainerSite, home: Path, programs: Programs, role: str, shared: Path, files: int
) -> str:
    """The file's text.

    `role` is the container's host name too, by which others reach it; `files`: how many it may have
    open.
    """
    layout = site.layout(home)
    settings = stack_settings(layout, programs, USER, site.bucket_seconds)
    for group, more in _container_settings(
        site, layout.ports[SERVICE], role, shared, files
    ).items():
        settings.setdefault(group, {}).update(more)
    return _HEAD + render_toml(settings)


def connection_limit(files: int) -> int:
    """What `service.connections_max` can be: some engines give a container 1,024 files, too few for
    the default.
    """
    return (
        ServiceSettings().connections_max
        if files == resource.RLIM_INFINITY
        else min(ServiceSettings().connections_max, files - _OTHER_FILES)
    )


def _container_settings(
    site: ContainerSite, port: int, role: str, shared: Path, files: int
) -> dict[str, dict[str, Any]]:
    """Over the network nothing is posted without certificates on both sides."""
    tls = shared / "tls"
    client = {"ca": str(tls / "ca.pem"), "certificate": str(tls / "client.pem")}
    return {
        "mirror": {"rest_host": role, "workers": site.mirrors},
        "etl": {
            "ledger": f"postgresql://{USER}:${{file:{shared / 'ledger-password'}}}@postgres/{USER}"
        },
        "service": {
            "host": "0.0.0.0",  # noqa: S104  # the container's own network
            "tls": {"certificate": str(tls / "service.pem"), "client_ca": str(tls / "ca.pem")},
            "connections_max": connection_limit(files),
        },
        "tailer": {
            "service_urls": [f"https://{BALANCER}:{port}"],
            "tls": client,
            "host_name": "application",
            "metrics_port": TAILER_PORT,
            "sources": [{"name": "app", "paths": [str(LOGS / "*.log*")]}],
        },
        "types": {"dir": str(TYPES)},
    }
