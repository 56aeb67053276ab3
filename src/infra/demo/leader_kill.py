"""SIGKILL for the broker that leads a partition, and its return."""

from __future__ import annotations

from hourmark.config import Config
from hourmark.errors import Unavailable
from hourmark.kafka import Cluster
from infra.stack import Stack


def kill_leader(stack: Stack, config: Config, topic: str) -> str:
    """Kill the edge broker that leads the topic's first partition; its name."""
    metadata = Cluster(config.kafka.edge, "edge").admin.list_topics(topic, timeout=15.0)
    leader = metadata.topics[topic].partitions[0].leader
    if leader < 0:
        raise Unavailable(f"nobody leads {topic}-0, so there is no leader to kill")
    name = f"edge-{leader}"
    stack.kill(name)
    return name
