"""Ports and paths of one stack: all below `<home>/stack`, the ports chosen once and then kept."""

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
ANY_PORTS: Mapping[str, int] = MappingProxyType({})  # none is preferred
# the delivery service: none of the stack's servers, but its port and state folder are chosen here
SERVICE = "service"
METRICS = "etl-metrics"  # of the ETL's driver, likewise
WATCH = "mirror-watch"  # of the mirror's watch, for its metrics
JMX = "jmx"  # of each broker, where a stack is made so

PORT_NAMES = (
    *(
        f"{broker}{of}"
        for of in ("", "-controller", f"-{JMX}")
        for broker in (*EDGE_NAMES, *CENTRAL_NAMES)
    ),
    "namenode",
    "namenode-http",
    *(f"{datanode}{of}" for datanode in DATANODES for of in ("", "-http", "-ipc")),
    "registry",
    *(f"{worker}-rest" for worker in MIRRORS),
    WATCH,
    SERVICE,
    METRICS,
)


class Shape(NamedTuple):
    """How many servers there are.

    `apart`: each has a host of its own, of its name, instead of ports on loopback.
    """

    edge: int = len(EDGE_BROKERS)
    central: int = 1
    datanodes: tuple[str, ...] = ("datanode",)
    mirrors: tuple[str, ...] = MIRRORS[:1]
    apart: bool = False


SPREAD = Shape(central=len(CENTRAL_NAMES), datanodes=DATANODES)


class Layout(NamedTuple):
    """Where everything of one stack is."""

    home: Path
    ports: dict[str, int]
    shape: Shape = Shape()

    @property
    def root(self) -> Path:
        return stack_root(self.home)

    @property
    def logs(self) -> Path:
        """One file a server, appended to."""
        return self.root / "logs"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def settings(self) -> Path:
        """Generated settings of the servers."""
        return self.root / "settings"

    @property
    def state(self) -> Path:
        """Of Hourmark's own components (identity, checkpoints, ledger): it belongs to these
        servers' data and goes with it.
        """
        return self.root / "state"

    @property
    def config_file(self) -> Path:
        """What the other commands read; see `hourmark.config.loading.default_config_file`."""
        return self.root / "hourmark.toml"

    def worker_file(self, worker: str) -> Path:
        """What a worker of the mirror reads: the first what all read, each other one of its own."""
        return self.config_file if worker == MIRRORS[0] else self.settings / f"{worker}.toml"

    def address(self, port_name: str) -> str:
        return f"{self.host(port_name)}:{self.ports[port_name]}"

    def listener(self, port_name: str) -> str:
        """Where its server listens.

        With a host of its own that is everywhere: a name would be its address at the start alone,
        and a container that was cut off comes back with another.
        """
        return f"{self.listening_host}:{self.ports[port_name]}"

    @property
    def listening_host(self) -> str:
        return "0.0.0.0" if self.shape.apart else "127.0.0.1"  # noqa: S104

    def host(self, port_name: str) -> str:
        """Where the server is that has this port; all its ports begin with its name."""
        return (
            re.sub(r"-(controller|http|ipc|rest|jmx)$", "", port_name)
            if self.shape.apart
            else "127.0.0.1"
        )

    def nodes(self, cluster: str) -> range:
        """Node ids of the brokers of `cluster` ("edge" or "central")."""
        return range(1, (self.shape.edge if cluster == "edge" else self.shape.central) + 1)

    def bootstrap(self, cluster: str) -> str:
        return ",".join(self.address(f"{cluster}-{node}") for node in self.nodes(cluster))


def replication(servers: int) -> tuple[int, int]:
    """Copies among so many servers, and how many of them must be in sync: the loss of one is
    survived where three are.
    """
    copies = min(servers, 3)
    return copies, max(copies - 1, 1)


def stack_root(home: Path) -> Path:
    """The folder of the stack of a HOURMARK_HOME."""
    return home / "stack"


def free_ports(
    names: tuple[str, ...] = PORT_NAMES, preferred: Mapping[str, int] = ANY_PORTS
) -> dict[str, int]:
    """A free loopback port for each name, the preferred one where it is free; all are held open
    until the last is chosen, so no two are alike.

    They lie below the range from which the operating system gives ports to outgoing connections:
    else, while a broker is down, a client that dials its port again and again could be given that
    very port, and keep the broker from coming back.
    """
    with ExitStack() as held:
        first = {
            name: port for name, port in preferred.items() if name in names and _held(held, port)
        }
        return {name: first.get(name) or _hold_one(held) for name in names}


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with ExitStack() as held:
        return _held(held, port)


def _hold_one(held: ExitStack) -> int:
    for port in secrets.SystemRandom().sample(PORT_RANGE, 1000):
        if _held(held, port):
            return port
    raise Unavailable(
        f"no free port in {PORT_RANGE.start} to {PORT_RANGE.stop - 1}; end some of the "
        "programs that listen there"
    )


def _held(held: ExitStack, port: int) -> bool:
    listener = held.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(1)
    except OSError:
        return False
    return True
