"""The remote topics: for every topic that is to be copied from the edge, one on the central cluster, made by Hourmark.

MirrorMaker 2 would make them itself, but would not carry `min.insync.replicas` and `unclean.leader.election.enable`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hourmark.config import Config
from hourmark.errors import Unavailable
from hourmark.kafka import Cluster, TopicInfo, topic_settings
from hourmark.topic_setup import WantedTopic, ensure_topics
from hourmark.topics import central_topic
from mirror.properties import TOPICS, target_of

_MIRRORED: Final = re.compile("|".join(f"(?:{pattern})" for pattern in TOPICS))


def mirrored_topics(edge: Cluster) -> list[TopicInfo]:
    """The edge's topics that the mirror copies, by name. Unavailable while brokers disagree on which those are."""
    names = [n for n in edge.names() if _MIRRORED.fullmatch(n)]
    found = edge.topics(names)
    if unsure := [n for n in names if n not in found]:
        raise Unavailable(
            f"topics of the edge cluster were listed, and then not known: {', '.join(unsure)}; are they being deleted?"
        )
    return list(found.values())


def ensure_remote_topics(config: Config, edge: Cluster, central: Cluster) -> list[str]:
    """Create the remote topics that are missing, check the rest (Finding); returns the names created."""
    wanted = _wanted(config, edge, mirrored_topics(edge))
    return ensure_topics(central, wanted) if wanted else []


def _wanted(config: Config, edge: Cluster, topics: Sequence[TopicInfo]) -> list[WantedTopic]:
    if not topics:
        return []
    names = topic_settings(config.kafka.retention_hours, config.kafka.max_message_bytes, 1).keys()
    actual = edge.topic_configs(t.name for t in topics)
    wanted = []
    for topic in topics:
        settings = {name: actual[topic.name][name] for name in names if name in actual[topic.name]}
        settings["min.insync.replicas"] = str(target_of(config).min_insync_replicas)
        wanted.append(WantedTopic(central_topic(topic.name, config.kafka.edge_alias), len(topic.partitions), settings))
    return sorted(wanted, key=lambda t: t.name)
