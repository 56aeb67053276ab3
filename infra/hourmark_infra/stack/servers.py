"""The table of servers: for each its command, where it answers, what it waits for, and how it is asked whether it is well."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hourmark_infra.stack import health
from hourmark_infra.stack.health import Health
from hourmark_infra.stack.kafka import format_arguments
from hourmark_infra.stack.layout import EDGE_BROKERS, Layout
from hourmark_infra.stack.registry import registry_options, runner_jar

MIRROR = "mirror"
Command = tuple[str, ...]
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server. `format_command` prepares `data` before the first start; `ask_whole` asks whether it sees its whole cluster.

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


FindPrograms = Callable[[], Programs]


def server_table(layout: Layout, programs: FindPrograms, cluster_ids: dict[str, str], *, mirror: bool) -> dict[str, Server]:
    """All servers by name, in the order of their start."""
    edge = [_broker(layout, programs, "edge", node, cluster_ids["edge"]) for node in EDGE_BROKERS]
    central = _broker(layout, programs, "central", 1, cluster_ids["central"])
    servers = [*edge, central, _namenode(layout, programs), _datanode(layout, programs), _registry(layout, programs)]
    if mirror:
        servers.append(_mirror(layout, tuple(broker.name for broker in (*edge, central))))
    return {server.name: server for server in servers}


def mirror_is_there() -> bool:
    """Whether this installation has `hourmark mirror` (log hosts need not)."""
    return importlib.util.find_spec("hourmark_mirror") is not None


def _java(programs: Programs, heap_mb: int, *more: str) -> Command:
    # Small heaps and the first compiler only: a local stack shares few cores, and starts in half the time.
    options = (f"-Xmx{heap_mb}m", "-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
    return (str(programs.java), *options, *more)


def _server(
    layout: Layout, name: str, port: str, command: Callable[[], Command], ask: Callable[[str], Health], **more: Any
) -> Server:
    """One whose log, and unless said otherwise whose data, are named like it; `ask` takes its address."""
    address = layout.address(port)
    files = {"data": layout.data / name, "log": layout.logs / f"{name}.log"}
    return Server(name=name, command=command, address=address, ask=partial(ask, address), **{**files, **more})


def _broker(layout: Layout, programs: FindPrograms, cluster: str, node: int, cluster_id: str) -> Server:
    name = f"{cluster}-{node}"
    properties = layout.settings / f"{name}.properties"
    log4j = f"-Dlog4j2.configurationFile={(layout.settings / 'kafka-log4j2.properties').as_uri()}"
    brokers = len(EDGE_BROKERS) if cluster == "edge" else 1

    def run(heap_mb: int, *more: str) -> Command:
        found = programs()
        return _java(found, heap_mb, log4j, "-cp", found.kafka_classpath, *more)

    return _server(
        layout, name, name, partial(run, 400, "kafka.Kafka", str(properties)), partial(health.of_broker, node=node),
        ask_whole=partial(health.of_broker, layout.address(name), node, brokers),
        format_command=partial(run, 128, *format_arguments(properties, cluster_id)),
    )  # fmt: skip


def _hadoop(layout: Layout, programs: FindPrograms, heap_mb: int, *more: str) -> Command:
    found = programs()
    classpath = f"{layout.settings / 'hadoop'}:{found.hadoop}/*"
    return _java(found, heap_mb, f"-Dhadoop.log.dir={layout.logs}", "-cp", classpath, *more)


def _namenode(layout: Layout, programs: FindPrograms) -> Server:
    made = partial(_hadoop, layout, programs, 128, NAMENODE, "-format", "-nonInteractive", "-force")
    command = partial(_hadoop, layout, programs, 256, NAMENODE)
    return _server(layout, "namenode", "namenode-http", command, health.of_namenode, format_command=made)


def _datanode(layout: Layout, programs: FindPrograms) -> Server:
    command = partial(_hadoop, layout, programs, 256, DATANODE)
    ask = partial(health.of_datanode, namenode=layout.address("namenode-http"))
    return _server(layout, "datanode", "datanode-http", command, ask)


def _registry(layout: Layout, programs: FindPrograms) -> Server:
    def command() -> Command:
        found = programs()
        return _java(found, 256, *registry_options(layout), "-jar", str(runner_jar(found.registry)))

    return _server(layout, "registry", "registry", command, health.of_registry)


def _mirror(layout: Layout, brokers: tuple[str, ...]) -> Server:
    def command() -> Command:
        return (sys.executable, "-m", "hourmark", "mirror", "run", "--config", str(layout.config_file))

    data = layout.state / "mirror"
    return _server(layout, MIRROR, "mirror-rest", command, health.of_mirror, data=data, needs=brokers)
