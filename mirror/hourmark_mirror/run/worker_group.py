"""Workers of one mirror as recorded on the target cluster by Kafka Connect.

| topic                         | contents                                                    |
|-------------------------------|-------------------------------------------------------------|
| mm2-configs.<source>.internal | connector settings, under `connector-MirrorSourceConnector` |
| mm2-status.<source>.internal  | states of connectors and tasks (`task_status`)              |
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import Cluster
from hourmark.kafka.compacted_topic import read_topic
from hourmark.kafka.mirror import CONNECTOR, MirrorWorkers, read_workers
from hourmark_mirror.run.task_status import TaskState, TaskStates, status_topic

_KEY: Final = f"connector-{CONNECTOR}".encode()


class WorkerGroup(NamedTuple):
    """Kafka Connect workers of one mirror, with the states of their tasks and their settings.

    Attributes:
        workers: Hosts of the running workers, and the leader.
        states: Maps each connector and task name to its last state.
        settings: Connector settings that the leader last wrote; empty if the connector has never
            run.
    """

    workers: MirrorWorkers
    states: dict[str, TaskState]
    settings: dict[str, str]


def read_worker_group(central: KafkaCluster, edge_alias: str) -> WorkerGroup:
    """Read the current workers, task states and connector settings of one mirror.

    Args:
        central: Settings of the central cluster.
        edge_alias: Alias of the edge cluster, which identifies the mirror.

    Returns:
        The group. If the mirror is not running, there are no workers, and states and settings are
        the last ones written.

    Raises:
        Unavailable: The central cluster does not respond.
    """
    states = TaskStates("")
    states.update(read_topic(central, status_topic(edge_alias), cluster_name="central"))
    return WorkerGroup(
        read_workers(Cluster(central, "central"), edge_alias),
        states.to_dict(),
        read_connector_settings(central, edge_alias),
    )


def read_connector_settings(central: KafkaCluster, edge_alias: str) -> dict[str, str]:
    """Read the settings of a mirror's connector at its last run.

    The leader of the workers writes the settings to a topic on the central cluster. Secrets are not
    redacted.

    Args:
        central: Settings of the central cluster.
        edge_alias: Alias of the edge cluster, which identifies the mirror.

    Returns:
        Setting names and values; empty if the connector has never run.

    Raises:
        Unavailable: The central cluster does not respond.
    """
    values = dict(read_topic(central, f"mm2-configs.{edge_alias}.internal", cluster_name="central"))
    written = values.get(_KEY)
    return dict(json.loads(written)["properties"]) if written else {}
