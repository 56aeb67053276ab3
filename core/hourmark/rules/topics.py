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
    """Return the topics that an edge cluster needs, with their partitions and settings.

    Args:
        kafka: Kafka settings of one site.
        types: Event types. Each type has one topic.

    Returns:
        The topics `hourmark.audit` (event counts of each byte range of input), `hourmark.hosts`
        (progress reports of hosts) and `hourmark.types` (declared types and sources), then one
        topic for each type.
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
    return wanted + [event_topic_spec(kafka, t) for t in types]


def event_topic_spec(kafka: KafkaSettings, event_type: EventType) -> TopicSpec:
    """Return the topic that an edge cluster needs for an event type.

    Args:
        kafka: Kafka settings of one site.
        event_type: The event type.

    Returns:
        The topic with the partitions and the retention that the type declares. If the type declares
        no retention, that of the Kafka settings applies.
    """
    hours = event_type.retention_hours or kafka.retention_hours
    settings = topic_settings(hours, kafka.max_message_bytes, kafka.edge.min_insync_replicas)
    return TopicSpec(events_topic(event_type.name), event_type.partitions, settings)


def central_topics(kafka: KafkaSettings, types: Sequence[EventType]) -> list[TopicSpec]:
    """Return the mirrored topics that the central cluster needs, with partitions and settings.

    Args:
        kafka: Kafka settings of one site. The site must have a central cluster.
        types: Event types. Each type has one topic.

    Returns:
        The topics of `edge_topics` except `hourmark.types`, with their names on the central
        cluster.
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
