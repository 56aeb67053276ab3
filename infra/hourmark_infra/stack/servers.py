"""The table of servers: for each its command, where it answers, what it waits for, and how it is
asked whether it is well.
"""

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
# Beside small heaps, the first compiler only: a local stack shares few cores, and its servers start
# in half the time.
SMALL_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server. `format_command` prepares `data` before the first start; `ask_whole` asks whether
    it sees its whole cluster.

    Commands are made when they are asked for: only who starts a server needs its program.
    """

    name: str
    command: Callable[[], Command]
    address: str
    data: Path
    log: Path
    ask: Callable[[], Health]
    ask_whole: Callable[[], Health] | None = None
    format_command: Callable[[], Command] | None = None
    needs: tuple[str, ...] = ()


class Programs(NamedTuple):
    """What the servers are run from."""

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
    """All servers by name, in the order of their start; with one cluster there is nothing to
    mirror.
    """
    made = _ServerDefinitions(layout, programs, jmx)
    brokers = [
        made.broker(cluster, node, cluster_ids[cluster])
        for cluster in CLUSTERS[:clusters]
        for node in layout.nodes(cluster)
    ]
    servers = [*brokers, *made.others()]
    if mirror and clusters > 1:
        servers += made.mirror(tuple(broker.name for broker in brokers))
    return {server.name: server for server in servers}


def is_mirror_installed() -> bool:
    """Whether this installation has `hourmark mirror` (log hosts need not)."""
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
            ask_whole=partial(health.check_broker, self.layout.address(name), node, brokers),
            format_command=partial(self._kafka, 128, *formatting),
        )

    def others(self) -> tuple[Server, ...]:
        """HDFS and the registry."""
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
        """Its workers, and its watch; a stack of an earlier version has no port for that until the
        next `up`.
        """

        def of(
            name: str, port: str, worker: str, words: Command, ask: Callable[[str], Health]
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
                name, port, lambda: command, ask, data=self.layout.state / worker, needs=brokers
            )

        for worker in self.layout.shape.mirrors:
            yield of(worker, f"{worker}-rest", worker, ("run",), health.check_mirror)
        if (port := self.layout.ports.get(WATCH)) is not None:
            yield of(
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
        ask: Callable[[str], Health],
        **more: Any,
    ) -> Server:
        """One whose log, and unless said otherwise whose data, are named like it; `ask` takes its
        address.
        """
        address = self.layout.address(port)
        files = {"data": self.layout.data / name, "log": self.layout.logs / f"{name}.log"}
        return Server(
            name=name,
            command=command,
            address=address,
            ask=partial(ask, address),
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
