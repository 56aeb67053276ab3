"""The topics of Hourmark, at the edge and (with the source's prefix) on the central cluster.

Hourmark creates the remote topics itself, because MirrorMaker 2 would not carry all settings.
"""

from __future__ import annotations

from collections.abc import Sequence

from hourmark.config.groups import KafkaSettings
from hourmark.kafka.clients import topic_settings
from hourmark.kafka.topic_names import AUDIT, HOSTS, TYPES, central_topic, events_topic
from hourmark.kafka.topic_setup import TopicSpec
from hourmark.rules.event_types import EventType


def edge_topics(kafka: KafkaSettings, types: Sequence[EventType]) -> list[TopicSpec]:
    """All topics of the edge cluster, of a site's settings."""
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
    """The remote topics: those of the edge but `hourmark.types`, which the central side does not
    need.
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
