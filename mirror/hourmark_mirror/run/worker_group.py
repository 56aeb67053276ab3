"""The workers of one mirror, as the target cluster knows them: a group of Kafka Connect, and the
topics that it keeps there.

mm2-configs.<source>.internal   by `connector-MirrorSourceConnector`: what the connector runs with, as the leader wrote it
mm2-status.<source>.internal    states (`task_status`)
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import Cluster
from hourmark.kafka.compacted_topic import read_topic
from hourmark.kafka.mirror import CONNECTOR, Workers, workers
from hourmark_mirror.run.task_status import TaskState, TaskStates, status_topic

_KEY: Final = f"connector-{CONNECTOR}".encode()


class WorkerGroup(NamedTuple):
    """Who is in it, and what it runs."""

    workers: Workers
    states: dict[str, TaskState]
    settings: dict[str, str]


def read_worker_group(central: KafkaCluster, edge_alias: str) -> WorkerGroup:
    """What is known of the mirror of this edge now; Unavailable where the target does not
    answer.
    """
    states = TaskStates("")
    states.update(read_topic(central, status_topic(edge_alias), cluster_name="central"))
    return WorkerGroup(
        workers(Cluster(central, "central"), edge_alias),
        states.to_dict(),
        read_connector_settings(central, edge_alias),
    )


def read_connector_settings(central: KafkaCluster, edge_alias: str) -> dict[str, str]:
    """What the connector runs with; empty where none ever ran."""
    values = dict(read_topic(central, f"mm2-configs.{edge_alias}.internal", cluster_name="central"))
    written = values.get(_KEY)
    return dict(json.loads(written)["properties"]) if written else {}
