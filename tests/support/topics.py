"""What befalls topics."""

from __future__ import annotations

from confluent_kafka.admin import NewTopic
from tests.support.waiting import wait_for

from hourmark.kafka.clients import Cluster


def make_anew(cluster: Cluster, topic: str) -> None:
    """Delete the topic and make it again, with the same name and another id."""
    before = cluster.topics([topic])[topic]
    cluster.admin.delete_topics([topic])[topic].result(15)
    wait_for(lambda: not cluster.topics([topic]), f"{topic} is gone")
    replication = cluster.settings.replication_factor
    cluster.admin.create_topics([NewTopic(topic, len(before.partitions), replication)])[
        topic
    ].result(15)
    wait_for(  # a broker that has not heard of it yet may still be asked after one that has
        lambda: (
            (made := cluster.topics([topic]).get(topic)) is not None
            and made.topic_id != before.topic_id
        ),
        f"{topic} is there again, as another",
    )
