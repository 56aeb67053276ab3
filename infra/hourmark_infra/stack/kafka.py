"""Settings of the two Kafka clusters: small combined KRaft brokers and their JMX access; no I/O.

JMX listens on the loopback interface. Without a password, any program on the machine could run code
in a broker through JMX. The password is not a secret: the protection is its role, which may only
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hourmark_infra.stack.layout import Layout, replication

ROLE: Final = "hourmark"
PASSWORD: Final = "reads-only"  # noqa: S105  # see above

ACCESS_FILE: Final = "jmx.access"
# The name of a file, not a secret. Java requires that only its owner can read it.
PASSWORD_FILE: Final = "jmx.password"  # noqa: S105
FILES: Final = {ACCESS_FILE: f"{ROLE} readonly\n", PASSWORD_FILE: f"{ROLE} {PASSWORD}\n"}

_PREFIX: Final = "-Dcom.sun.management.jmxremote"


def jmx_options(settings: Path, port: int) -> tuple[str, ...]:
    """Return the JVM options that enable read-only JMX access on the loopback interface.

    Clients must authenticate with a user name and a password. Connections are not encrypted.

    Args:
        settings: Folder that contains the access file and the password file of JMX.
        port: TCP port of both JMX and RMI.

    Returns:
        Options of the form `-Dkey=value`.
    """
    return (
        f"{_PREFIX}.port={port}",
        f"{_PREFIX}.rmi.port={port}",
        f"{_PREFIX}.host=127.0.0.1",
        "-Djava.rmi.server.hostname=127.0.0.1",
        f"{_PREFIX}.ssl=false",
        f"{_PREFIX}.authenticate=true",
        f"{_PREFIX}.access.file={settings / ACCESS_FILE}",
        f"{_PREFIX}.password.file={settings / PASSWORD_FILE}",
    )


MESSAGE_BYTES_MAX = 8 * 1024 * 1024  # as hourmark.config.loading's kafka.max_message_bytes

LOG4J2 = """# Kafka's own pattern and level, to the console, which is the server's log file.
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
"""


def broker_properties(layout: Layout, cluster: str, node: int) -> dict[str, str]:
    """Return the properties for `server.properties` of a combined broker and KRaft controller.

    Args:
        layout: Paths and ports of the stack.
        cluster: Name of the cluster, `edge` or `central`.
        node: Node ID of the broker; the first broker of a cluster has ID 1.

    Returns:
        Property names and values.
    """
    nodes = layout.nodes(cluster)
    copies, in_sync = replication(len(nodes))
    name = f"{cluster}-{node}"
    voters = ",".join(
        f"{voter}@{layout.address(f'{cluster}-{voter}-controller')}" for voter in nodes
    )
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{layout.listener(name)},CONTROLLER://{layout.listener(f'{name}-controller')}",
        "advertised.listeners": f"PLAINTEXT://{layout.address(name)}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(layout.data / name / "log"),
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "message.max.bytes": str(MESSAGE_BYTES_MAX),
        "replica.fetch.max.bytes": str(MESSAGE_BYTES_MAX),
        **_SMALL,
    }


_SMALL = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "1",
    # A local consumer does not have to wait for other group members to join.
    "group.initial.rebalance.delay.ms": "0",
    # `down` stops all brokers at once. With a controlled shutdown, each would wait for a controller,
    # and the last brokers have none.
    "controlled.shutdown.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    # While nothing happens, the active controller appends a record twice a second by default, which
    # all brokers of the cluster copy.
    "metadata.max.idle.interval.ms": "5000",
    # The default of 128 MiB is a third of a broker's heap in this stack.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}


def render_properties(values: Mapping[str, str]) -> str:
    """Render a Java `.properties` file.

    Backslashes are doubled, because the format uses them as escape characters.

    Args:
        values: Property names and values.

    Returns:
        One line `name=value` for each property, sorted by name.
    """
    return "".join(f"{key}={value}\n" for key, value in sorted(values.items())).replace(
        "\\", "\\\\"
    )
