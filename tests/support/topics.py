"""What befalls topics."""

from __future__ import annotations

from confluent_kafka.admin import NewTopic
from tests.support.waiting import wait_for

from hourmark.kafka import Cluster


def make_anew(cluster: Cluster, topic: str) -> None:
    """Delete the topic and make it again, with the same name and another id."""
    before = cluster.topics([topic])[topic]
    cluster.admin.delete_topics([topic])[topic].result(15)
    wait_for(lambda: not cluster.topics([topic]), f"{topic} is gone")
    replication = cluster.settings.replication_factor
    cluster.admin.create_topics([NewTopic(topic, len(before.partitions), replication)])[topic].result(15)
    wait_for(lambda: bool(cluster.topics([topic])), f"{topic} is there again")
    assert cluster.topics([topic])[topic].topic_id != before.topic_id
