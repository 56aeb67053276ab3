"""Ports and paths of one stack: files below `<home>/stack`; ports are chosen once and then kept."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from hourmark.errors import Unavailable

PORT_RANGE = range(20_000, 32_000)
EDGE_BROKERS = (1, 2, 3)
EDGE_NAMES = tuple(f"edge-{node}" for node in EDGE_BROKERS)
CENTRAL_NAMES = ("central-1", "central-2", "central-3")
DATANODES = ("datanode", "datanode-2", "datanode-3")
CLUSTERS = ("edge", "central")
MIRRORS = ("mirror", "mirror-2")  # workers of one mirror
ANY_PORTS: Mapping[str, int] = MappingProxyType({})  # no preferred ports
# The delivery service is not a server of the stack, but its port and state folder are chosen here.
SERVICE = "service"
METRICS = "etl-metrics"  # metrics port of the ETL's driver, also not a server of the stack
WATCH = "mirror-watch"  # metrics port of the mirror's monitor
JMX = "jmx"  # suffix of a broker's JMX port, used if the stack enables JMX

PORT_NAMES = (
    *(
        f"{broker}{suffix}"
        for suffix in ("", "-controller", f"-{JMX}")
        for broker in (*EDGE_NAMES, *CENTRAL_NAMES)
    ),
    "namenode",
    "namenode-http",
    *(f"{datanode}{suffix}" for datanode in DATANODES for suffix in ("", "-http", "-ipc")),
    "registry",
    *(f"{worker}-rest" for worker in MIRRORS),
    WATCH,
    SERVICE,
    METRICS,
)


class StackShape(NamedTuple):
    """The number and placement of the servers of a stack.

    Attributes:
        edge: Number of Kafka brokers in the edge cluster.
        central: Number of Kafka brokers in the central cluster.
        datanodes: Names of the HDFS DataNodes.
        mirrors: Names of the MirrorMaker 2 workers.
        separate_hosts: Whether each server runs on a separate host with the name of the server.
            Otherwise, all servers use the loopback interface of one host.
    """

    edge: int = len(EDGE_BROKERS)
    central: int = 1
    datanodes: tuple[str, ...] = ("datanode",)
    mirrors: tuple[str, ...] = MIRRORS[:1]
    separate_hosts: bool = False


SPREAD = StackShape(central=len(CENTRAL_NAMES), datanodes=DATANODES)


class Layout(NamedTuple):
    """The paths and network addresses of the servers of a stack.

    Port names are those in `PORT_NAMES`, such as `edge-1` or `edge-1-controller`.

    Attributes:
        home: The `HOURMARK_HOME` folder, which contains the stack's data and configuration.
        ports: Maps port names to TCP ports.
        shape: Number and placement of the servers.
    """

    home: Path
    ports: dict[str, int]
    shape: StackShape = StackShape()

    @property
    def root(self) -> Path:
        return stack_root(self.home)

    @property
    def logs(self) -> Path:
        """Return the folder that contains the log files of the servers.

        The log file of a server is `NAME.log`, such as `edge-1.log`.
        """
        return self.root / "logs"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def settings(self) -> Path:
        """Return the folder that contains the generated settings files of the servers.

        `write_settings` creates the folder and writes the files.
        """
        return self.root / "settings"

    @property
    def state(self) -> Path:
        """Return the folder in which Hourmark's components store their state, such as checkpoints.

        `hourmark purge` deletes this folder together with the data of the servers.
        """
        return self.root / "state"

    @property
    def config_file(self) -> Path:
        """Return the path of `hourmark.toml`, the configuration file of this stack.

        Other commands use this file to find the servers. It does not exist before `write_settings`
        is called.
        """
        return self.root / "hourmark.toml"

    def worker_file(self, worker: str) -> Path:
        """Return the path of the configuration file of a MirrorMaker 2 worker.

        Args:
            worker: Name of the worker, such as `mirror-2`.

        Returns:
            The path of `hourmark.toml` for the first worker, `mirror`. All other workers have
            separate files.
        """
        return self.config_file if worker == MIRRORS[0] else self.settings / f"{worker}.toml"

    def address(self, port_name: str) -> str:
        return f"{self.host(port_name)}:{self.ports[port_name]}"

    def listener(self, port_name: str) -> str:
        """Return the address `host:port` on which a server listens.

        The host is 127.0.0.1, or 0.0.0.0 if each server runs on a separate host.

        Args:
            port_name: Name of the port, a key of `ports`.

        Raises:
            KeyError: There is no port of this name.
        """
        return f"{self.listening_host}:{self.ports[port_name]}"

    @property
    def listening_host(self) -> str:
        return "0.0.0.0" if self.shape.separate_hosts else "127.0.0.1"  # noqa: S104

    def host(self, port_name: str) -> str:
        """Return the host name or IP address that clients use to connect to a port.

        Args:
            port_name: Name of the port, a key of `ports`.

        Returns:
            127.0.0.1, or the name of the server if each server runs on a separate host.
        """
        return (
            re.sub(r"-(controller|http|ipc|rest|jmx)$", "", port_name)
            if self.shape.separate_hosts
            else "127.0.0.1"
        )

    def nodes(self, cluster: str) -> range:
        """Return the node IDs of the brokers in a Kafka cluster.

        Args:
            cluster: Name of the cluster, `edge` or `central`.

        Returns:
            Consecutive IDs starting at 1; empty if the cluster has no brokers.
        """
        return range(1, (self.shape.edge if cluster == "edge" else self.shape.central) + 1)

    def bootstrap(self, cluster: str) -> str:
        return ",".join(self.address(f"{cluster}-{node}") for node in self.nodes(cluster))


def replication(servers: int) -> tuple[int, int]:
    """Return the replication factor and minimum number of in-sync replicas for a cluster size.

    Args:
        servers: Number of brokers or DataNodes in the cluster, at least 1.

    Returns:
        (1, 1) for one server, (2, 1) for two, and (3, 2) for three or more.
    """
    copies = min(servers, 3)
    return copies, max(copies - 1, 1)


def stack_root(home: Path) -> Path:
    """Return the folder that contains all files of a local stack of servers.

    Args:
        home: The `HOURMARK_HOME` folder, which contains the stack's data and configuration.

    Returns:
        The subfolder `stack`, which may not exist yet.
    """
    return home / "stack"


def free_ports(
    names: tuple[str, ...] = PORT_NAMES, preferred: Mapping[str, int] = ANY_PORTS
) -> dict[str, int]:
    """Choose a different free TCP port on the loopback interface for each name.

    Ports are below the ephemeral port range of the operating system, so no client connection can
    take the port of a server that is being restarted.

    Args:
        names: Names of the ports to choose.
        preferred: Maps port names to preferred TCP ports, which are used if they are free.

    Returns:
        Maps port names to TCP ports.

    Raises:
        Unavailable: No free port was found.
    """
    with ExitStack() as held:
        first = {
            name: port
            for name, port in preferred.items()
            if name in names and _try_listen(held, port)
        }
        return {name: first.get(name) or _listen_on_free_port(held) for name in names}


def is_port_free(port: int) -> bool:
    """Return whether a TCP port of the loopback interface is free.

    The port is not reserved, so another program may take it after the call.

    Args:
        port: TCP port number.
    """
    with ExitStack() as held:
        return _try_listen(held, port)


def _listen_on_free_port(held: ExitStack) -> int:
    for port in secrets.SystemRandom().sample(PORT_RANGE, 1000):
        if _try_listen(held, port):
            return port
    raise Unavailable(
        f"no free port from {PORT_RANGE.start} to {PORT_RANGE.stop - 1}; stop some of the "
        "programs that listen on these ports"
    )


def _try_listen(held: ExitStack, port: int) -> bool:
    listener = held.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(1)
    except OSError:
        return False
    return True
