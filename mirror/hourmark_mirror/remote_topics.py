"""The remote topics: for every topic that is to be copied from the edge, one on the central cluster, made by Hourmark.

MirrorMaker 2 would make them itself, but would not carry `min.insync.replicas` and `unclean.leader.election.enable`.
"""

from __future__ import annotations

from hourmark.config import Config
from hourmark.kafka import topic_settings
from hourmark.topic_setup import WantedTopic, ensure_topics
from hourmark.topics import central_topic
from hourmark_mirror.sites import Sites


def ensure_remote_topics(config: Config, sites: Sites) -> list[str]:
    """Create the remote topics that are missing, check the rest (Finding); returns the names created."""
    topics = sites.topics()
    names = topic_settings(config.kafka.retention_hours, config.kafka.max_message_bytes, 1).keys()
    actual = sites.edge.topic_configs(t.name for t in topics)
    wanted = []
    for topic in topics:
        settings = {name: actual[topic.name][name] for name in names if name in actual[topic.name]}
        settings["min.insync.replicas"] = str(sites.central.settings.min_insync_replicas)
        wanted.append(WantedTopic(central_topic(topic.name, sites.alias), len(topic.partitions), settings))
    return ensure_topics(sites.central, sorted(wanted, key=lambda t: t.name))
