"""Remote topics: one on the central cluster for each mirrored edge topic, created by Hourmark.

MirrorMaker 2 would create them itself, but without `min.insync.replicas` and
`unclean.leader.election.enable`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from hourmark.config.loading import Config
from hourmark.kafka.clients import topic_settings
from hourmark.kafka.topic_names import central_topic
from hourmark.kafka.topic_setup import TopicSpec, add_partitions, alter_topic, create_topics
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.topics.planning import DifferenceKind, MirrorDifference, topic_differences

_LOG = logging.getLogger(__name__)

_POLICIES: Final = ("cleanup.policy", "retention.bytes")


def expected_remote_topics(
    config: Config, sites: MirrorSites, selected: Callable[[str], bool] = bool
) -> list[TopicSpec]:
    """Return the remote topics that should exist on the central cluster, sorted by name.

    Each remote topic has the same partition count and settings as its edge topic, except for
    `min.insync.replicas`, which is taken from the configuration of the central cluster.

    Args:
        config: Configuration with both clusters.
        sites: Clients of both clusters.
        selected: Function that returns True for the names of the edge topics to include; all by
            default.

    Returns:
        The specification of each remote topic; empty if no edge topic is selected.

    Raises:
        Unavailable: A cluster does not respond.
    """
    topics = [t for t in sites.topics() if selected(t.name)]
    names = [
        *topic_settings(config.kafka.retention_hours, config.kafka.max_message_bytes, 1),
        *_POLICIES,
    ]
    actual = sites.edge.topic_configs(t.name for t in topics)
    wanted = []
    for topic in topics:
        settings = {name: actual[topic.name][name] for name in names if name in actual[topic.name]}
        settings["min.insync.replicas"] = str(sites.central.settings.min_insync_replicas)
        wanted.append(
            TopicSpec(central_topic(topic.name, sites.alias), len(topic.partitions), settings)
        )
    return sorted(wanted, key=lambda t: t.name)


def remote_topic_differences(
    config: Config, sites: MirrorSites, selected: Callable[[str], bool] = bool
) -> list[MirrorDifference]:
    """Compare the remote topics on the central cluster with the topics at the edge.

    Args:
        config: Configuration with both clusters.
        sites: Clients of both clusters.
        selected: Function that returns True for the names of the edge topics to include; all by
            default.

    Returns:
        The differences between the expected and the existing remote topics; empty if there are
        none.

    Raises:
        Unavailable: A cluster does not respond.
    """
    return list(_differences(sites, expected_remote_topics(config, sites, selected)))


def apply_differences(
    config: Config, sites: MirrorSites, differences: Iterable[MirrorDifference]
) -> None:
    """Create remote topics, add partitions and change topic settings to resolve differences.

    Differences that are not `applicable` are ignored, as are topics that are no longer expected.
    The call can be repeated safely.

    Args:
        config: Configuration with both clusters.
        sites: Clients of both clusters.
        differences: Differences from `remote_topic_differences`.

    Raises:
        Unavailable: A cluster does not respond. Some changes may have been made; repeat the call.
    """
    wanted = {t.name: t for t in expected_remote_topics(config, sites)}
    for difference in differences:
        topic = wanted.get(difference.subject)
        if topic is None or not difference.applicable:
            continue
        if difference.kind is DifferenceKind.CREATE:
            create_topics(sites.central, [topic])
        elif difference.kind is DifferenceKind.ADD_PARTITIONS:
            add_partitions(sites.central, topic.name, topic.partitions)
        else:
            alter_topic(
                sites.central, topic.name, {difference.setting: topic.settings[difference.setting]}
            )


def ensure_remote_topics(config: Config, sites: MirrorSites) -> list[str]:
    """Create the remote topics that are missing on the central cluster.

    Other differences are only logged as warnings. They do not prevent the mirror from starting, and
    `hourmark mirror apply` resolves them.

    Args:
        config: Configuration with both clusters.
        sites: Clients of both clusters.

    Returns:
        The names of the created topics; empty if none were missing.

    Raises:
        Unavailable: A cluster does not respond.
    """
    wanted = expected_remote_topics(config, sites)
    missing = []
    for difference in _differences(sites, wanted):
        if difference.kind is DifferenceKind.CREATE:
            missing.append(difference.subject)
        else:
            _LOG.warning(
                "%s; `hourmark mirror apply` updates remote topics to match the edge",
                difference,
            )
    create_topics(sites.central, [t for t in wanted if t.name in missing])
    return missing


def _differences(sites: MirrorSites, wanted: list[TopicSpec]) -> Iterable[MirrorDifference]:
    there = sites.central.topics([t.name for t in wanted])
    return topic_differences(wanted, there, sites.central.topic_configs(there))
