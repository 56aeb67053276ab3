"""Number and addresses of a containerized site's servers, read from environment variables.

`docker-compose.yml` sets the same variables in each container:

SITE_EDGE_BROKERS      number of edge brokers, default 3
SITE_CENTRAL_BROKERS   number of central brokers, default 3
SITE_DATANODES         number of DataNodes, default 3
SITE_BUCKET_SECONDS    length of a bucket in seconds, default 60
SITE_SPARK_MASTER      `--master` of spark-submit, default spark://spark-master:7077
SITE_MIRRORS           number of mirror workers, default 2
COMPOSE_PROFILES       if the list contains `canary`, the site's types declare the canary
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.errors import ConfigError
from hourmark_infra.stack.layout import CLUSTERS, METRICS, SERVICE, Layout, StackShape

SHARED: Final = Path("/site")  # volume of all containers, filled by `site_setup`
SPARK_PORT: Final = 7077
BALANCER: Final = "balancer"

# Each server has its own host, so servers of one kind use the same port.
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
    """The size and settings of a site, a set of containers that form one Hourmark installation.

    Attributes:
        edge: Number of Kafka brokers in the edge cluster.
        central: Number of Kafka brokers in the central cluster.
        datanodes: Number of HDFS DataNodes.
        bucket_seconds: Length of a bucket in seconds.
        spark_master: URL of the Spark master, for `spark-submit --master`.
        mirrors: Number of MirrorMaker 2 workers.
        canary: Whether the site declares the canary, a test event for monitoring the pipeline.
    """

    edge: int
    central: int
    datanodes: int
    bucket_seconds: int
    spark_master: str
    mirrors: int
    canary: bool

    def layout(self, home: Path) -> Layout:
        """Return the hosts and ports of the site's servers, and the folders of one container.

        Each server runs on a separate host with the name of the server, such as `edge-1`.

        Args:
            home: The `HOURMARK_HOME` folder of the container.
        """
        datanodes = tuple(f"datanode-{number}" for number in range(1, self.datanodes + 1))
        shape = StackShape(self.edge, self.central, datanodes, separate_hosts=True)
        layout = Layout(home, dict(_PORTS), shape)
        for name in (f"{cluster}-{node}" for cluster in CLUSTERS for node in layout.nodes(cluster)):
            layout.ports.update({name: _BROKER, f"{name}-controller": _CONTROLLER})
        for name in datanodes:
            layout.ports.update({f"{name}{kind}": port for kind, port in _DATANODE.items()})
        return layout


def read_site(environment: Mapping[str, str]) -> ContainerSite:
    """Read the size and settings of a container's site from environment variables.

    A site is a set of containers that form one Hourmark installation.

    Missing variables have default values: three edge brokers, three central brokers, three
    DataNodes, two MirrorMaker 2 workers and buckets of 60 seconds.

    Args:
        environment: Names and values of environment variables. `SITE_*` and `COMPOSE_PROFILES` are
            read.

    Raises:
        ConfigError: A variable that holds a number is not a positive integer.
    """
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
        raise ConfigError(f"{name} = {text!r}: must be a positive integer")
    return int(text)
