"""Topics that Hourmark needs at the edge and on the central cluster.

Remote topics on the central cluster have the edge alias as prefix. Hourmark creates them itself,
because MirrorMaker 2 would not copy all settings.
"""

from __future__ import annotations

from collections.abc import Sequence

from hourmark.config.groups import KafkaSettings
from hourmark.kafka.clients import topic_settings
from hourmark.kafka.topic_names import AUDIT, HOSTS, TYPES, central_topic, events_topic
from hourmark.kafka.topic_setup import TopicSpec
from hourmark.rules.event_types import EventType


def edge_topics(kafka: KafkaSettings, types: Sequence[EventType]) -> list[TopicSpec]:
    """Return all topics that the edge cluster needs, with their partitions and settings.

    Args:
        kafka: KafkaSettings settings of one site.
        types: Event types in force; the control topics are always included.
    """
    common = topic_settings(
        kafka.retention_hours, kafka.max_message_bytes, kafka.edge.min_insync_replicas
    )
    compacted = {**common, "cleanup.policy": "compact", "retention.ms": "-1"}
    wanted = [
        TopicSpec(AUDIT, 1, common),
        TopicSpec(HOSTS, 1, common),
        TopicSpec(TYPES, 1, compacted),
    ]
    for t in types:
        hours = t.retention_hours or kafka.retention_hours
        settings = topic_settings(hours, kafka.max_message_bytes, kafka.edge.min_insync_replicas)
        wanted.append(TopicSpec(events_topic(t.name), t.partitions, settings))
    return wanted


def central_topics(kafka: KafkaSettings, types: Sequence[EventType]) -> list[TopicSpec]:
    """Return the remote topics that the central cluster needs, with their partitions and settings.

    These are the edge topics except `hourmark.types`. The site must have a central cluster.

    Args:
        kafka: KafkaSettings settings of one site.
        types: Event types in force.
    """
    assert kafka.central is not None
    isr = str(kafka.central.min_insync_replicas)
    return [
        TopicSpec(
            central_topic(t.name, kafka.edge_alias),
            t.partitions,
            {**t.settings, "min.insync.replicas": isr},
        )
        for t in edge_topics(kafka, types)
        if t.name != TYPES
    ]
