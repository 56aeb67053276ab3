"""How many servers the site has and where they are, from the environment that docker-compose.yml
gives each container. Pure.

SITE_EDGE_BROKERS, SITE_CENTRAL_BROKERS, SITE_DATANODES   how many; 3, 3, 3
SITE_BUCKET_SECONDS                                       length of buckets; 60
SITE_SPARK_MASTER                                         what spark-submit takes as --master; spark://spark-master:7077
SITE_MIRRORS                                              workers of the mirror; 2
COMPOSE_PROFILES                                          with `canary` among them the site's types declare the canary
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.errors import ConfigError
from hourmark_infra.stack.layout import CLUSTERS, METRICS, SERVICE, Layout, Shape

SHARED: Final = Path("/site")  # a volume that every container has: what `first` made
SPARK_PORT: Final = 7077
BALANCER: Final = "balancer"

# Each server has a host of its own, so these may be everywhere the same.
_BROKER, _CONTROLLER = 9092, 9093
_DATANODE: Final = {"": 9866, "-http": 9864, "-ipc": 9867}
_PORTS: Final = {
    "namenode": 8020,
    "namenode-http": 9870,
    "registry": 8081,
    "mirror-rest": 8783,
    SERVICE: 8780,
    METRICS: 8784,
}


class ContainerSite(NamedTuple):
    """All that differs between a small site and a large one."""

    edge: int
    central: int
    datanodes: int
    bucket_seconds: int
    spark_master: str
    mirrors: int
    canary: bool

    def layout(self, home: Path) -> Layout:
        """Ports and hosts, and the folders of a container whose home this is."""
        datanodes = tuple(f"datanode-{number}" for number in range(1, self.datanodes + 1))
        shape = Shape(self.edge, self.central, datanodes, apart=True)
        layout = Layout(home, dict(_PORTS), shape)
        for name in (f"{cluster}-{node}" for cluster in CLUSTERS for node in layout.nodes(cluster)):
            layout.ports.update({name: _BROKER, f"{name}-controller": _CONTROLLER})
        for name in datanodes:
            layout.ports.update({f"{name}{kind}": port for kind, port in _DATANODE.items()})
        return layout


def read_site(environment: Mapping[str, str]) -> ContainerSite:
    """ConfigError names a variable that holds no number above 0."""
    return ContainerSite(
        edge=_read_count(environment, "SITE_EDGE_BROKERS", 3),
        central=_read_count(environment, "SITE_CENTRAL_BROKERS", 3),
        datanodes=_read_count(environment, "SITE_DATANODES", 3),
        bucket_seconds=_read_count(environment, "SITE_BUCKET_SECONDS", 60),
        spark_master=environment.get("SITE_SPARK_MASTER") or f"spark://spark-master:{SPARK_PORT}",
        mirrors=_read_count(environment, "SITE_MIRRORS", 2),
        canary="canary" in environment.get("COMPOSE_PROFILES", "").split(","),
    )


def _read_count(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"{name} = {text!r}: allowed is a whole number above 0")
    return int(text)
