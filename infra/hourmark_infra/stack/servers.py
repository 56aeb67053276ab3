"""Definitions of the stack's servers: command, address, dependencies and health check of each."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hourmark_infra.stack import hadoop, health
from hourmark_infra.stack.health import Health
from hourmark_infra.stack.kafka import jmx_options
from hourmark_infra.stack.layout import CLUSTERS, JMX, MIRRORS, WATCH, Layout
from hourmark_infra.stack.options import Clusters
from hourmark_infra.stack.registry import find_runner_jar, registry_options

MIRROR = MIRRORS[0]
Command = tuple[str, ...]
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
# Small heaps and only the first-tier compiler: a local stack shares few cores, and its servers
# start in half the time.
SMALL_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The definition of one server of a stack, with its commands and health checks.

    Commands are functions, so programs are only downloaded when a server is started.

    Attributes:
        name: Name of the server, such as `edge-1`.
        command: Function that returns the command line that runs the server.
        address: Network address `host:port` for the health check.
        data: Path of the data folder.
        log: Path of the log file.
        check_health: Function that returns the health of the server.
        check_cluster_health: Like `check_health`, but the server must also see all other servers of
            its cluster; None for a server without a cluster.
        format_command: Function that returns the command line for formatting the data folder; None
            if no formatting is necessary.
        depends_on: Names of the servers that must be healthy before this server is started.
    """

    name: str
    command: Callable[[], Command]
    address: str
    data: Path
    log: Path
    check_health: Callable[[], Health]
    check_cluster_health: Callable[[], Health] | None = None
    format_command: Callable[[], Command] | None = None
    depends_on: tuple[str, ...] = ()


class Programs(NamedTuple):
    """The paths of the programs that run the servers.

    Attributes:
        java: Path of the `java` executable.
        kafka: Folder that contains the jars of Kafka.
        hadoop: Folder that contains the jars of Hadoop.
        registry: Program folder of the schema registry.
    """

    java: Path
    kafka: Path
    hadoop: Path
    registry: Path

    @property
    def kafka_classpath(self) -> str:
        return f"{self.kafka}/*"


ProgramsProvider = Callable[[], Programs]


def server_table(
    layout: Layout,
    programs: ProgramsProvider,
    cluster_ids: dict[str, str],
    *,
    mirror: bool,
    clusters: Clusters = 2,
    jmx: bool = False,
) -> dict[str, Server]:
    """Return the definitions of all servers of a stack.

    Args:
        layout: Paths and ports of the stack.
        programs: Function that returns the paths of the programs, called when a command line is
            needed.
        cluster_ids: Maps the cluster names `edge` and `central` to Kafka cluster IDs.
        mirror: Whether MirrorMaker 2 and its monitor are included; ignored with one cluster.
        clusters: Number of Kafka clusters.
        jmx: Whether brokers expose their metrics through JMX.

    Returns:
        Maps each server name to its definition, in start order.
    """
    definitions = _ServerDefinitions(layout, programs, jmx)
    brokers = [
        definitions.broker(cluster, node, cluster_ids[cluster])
        for cluster in CLUSTERS[:clusters]
        for node in layout.nodes(cluster)
    ]
    servers = [*brokers, *definitions.hdfs_and_registry()]
    if mirror and clusters > 1:
        servers += definitions.mirror(tuple(broker.name for broker in brokers))
    return {server.name: server for server in servers}


def is_mirror_installed() -> bool:
    """Return whether the package that provides the command `hourmark mirror` is installed.

    The local stack can run MirrorMaker 2 only if this package is installed.
    """
    return importlib.util.find_spec("hourmark_mirror") is not None


class _ServerDefinitions(NamedTuple):
    layout: Layout
    programs: ProgramsProvider
    jmx: bool = False

    def broker(self, cluster: str, node: int, cluster_id: str) -> Server:
        name = f"{cluster}-{node}"
        properties = str(self.layout.settings / f"{name}.properties")
        formatting = (
            "kafka.tools.StorageTool",
            "format",
            "--ignore-formatted",
            "-t",
            cluster_id,
            "-c",
            properties,
        )
        brokers = len(self.layout.nodes(cluster))
        running = partial(self._kafka, 400, *self._metrics_of(name), "kafka.Kafka", properties)
        return self._server(
            name,
            name,
            running,
            partial(health.check_broker, node=node),
            check_cluster_health=partial(
                health.check_broker, self.layout.address(name), node, brokers
            ),
            format_command=partial(self._kafka, 128, *formatting),
        )

    def hdfs_and_registry(self) -> tuple[Server, ...]:
        formatting = partial(self._hadoop, 128, NAMENODE, "-format", "-nonInteractive", "-force")
        namenode = partial(self._hadoop, 256, NAMENODE)
        of_datanode = partial(health.check_datanode, namenode=self.layout.address("namenode-http"))
        return (
            self._server(
                "namenode",
                "namenode-http",
                namenode,
                health.check_namenode,
                format_command=formatting,
            ),
            *(
                self._server(name, f"{name}-http", self._datanode(name), of_datanode)
                for name in self.layout.shape.datanodes
            ),
            self._server("registry", "registry", self._registry, health.check_registry),
        )

    def _datanode(self, name: str) -> Callable[[], Command]:
        options = hadoop.datanode_options(self.layout, name)
        return partial(self._hadoop, 256, DATANODE, *options)

    def mirror(self, brokers: tuple[str, ...]) -> Iterator[Server]:
        def define(
            name: str, port: str, worker: str, words: Command, check: Callable[[str], Health]
        ) -> Server:
            command = (
                sys.executable,
                "-m",
                "hourmark",
                "mirror",
                *words,
                "--config",
                str(self.layout.worker_file(worker)),
            )
            return self._server(
                name,
                port,
                lambda: command,
                check,
                data=self.layout.state / worker,
                depends_on=brokers,
            )

        for worker in self.layout.shape.mirrors:
            yield define(worker, f"{worker}-rest", worker, ("run",), health.check_mirror)
        if (port := self.layout.ports.get(WATCH)) is not None:
            yield define(
                WATCH,
                WATCH,
                MIRROR,
                ("watch", "--metrics-port", str(port)),
                health.check_mirror_watch,
            )

    def _server(
        self,
        name: str,
        port: str,
        command: Callable[[], Command],
        check: Callable[[str], Health],
        **more: Any,
    ) -> Server:
        # `more` contains further fields of `Server`, which override the default paths.
        address = self.layout.address(port)
        files = {"data": self.layout.data / name, "log": self.layout.logs / f"{name}.log"}
        return Server(
            name=name,
            command=command,
            address=address,
            check_health=partial(check, address),
            **{**files, **more},
        )

    def _java(self, heap_mb: int, *more: str) -> Command:
        options = (f"-Xmx{heap_mb}m", "-Xms32m", *SMALL_JAVA, "-XX:+ExitOnOutOfMemoryError")
        return (str(self.programs().java), *options, *more)

    def _metrics_of(self, broker: str) -> tuple[str, ...]:
        return (
            jmx_options(self.layout.settings, self.layout.ports[f"{broker}-{JMX}"])
            if self.jmx
            else ()
        )

    def _kafka(self, heap_mb: int, *more: str) -> Command:
        log4j = f"-Dlog4j2.configurationFile={(self.layout.settings / 'kafka-log4j2.properties').as_uri()}"
        return self._java(heap_mb, log4j, "-cp", self.programs().kafka_classpath, *more)

    def _hadoop(self, heap_mb: int, *more: str) -> Command:
        classpath = f"{self.layout.settings / 'hadoop'}:{self.programs().hadoop}/*"
        return self._java(heap_mb, f"-Dhadoop.log.dir={self.layout.logs}", "-cp", classpath, *more)

    def _registry(self) -> Command:
        return self._java(
            256,
            *registry_options(self.layout),
            "-jar",
            str(find_runner_jar(self.programs().registry)),
        )
