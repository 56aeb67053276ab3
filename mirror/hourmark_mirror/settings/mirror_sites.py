"""Edge and central cluster of a configuration, and the topics that the mirror copies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster, Partition, TopicInfo
from hourmark.kafka.mirror import MirrorPositions
from hourmark.kafka.topic_names import central_topic, edge_topic
from hourmark_mirror.settings.properties import TOPICS, target_cluster

_MIRRORED: Final = re.compile("|".join(f"(?:{pattern})" for pattern in TOPICS))


class MirrorSites:
    """Clients for the edge (source) and central (target) clusters of one mirror.

    Attributes:
        alias: Alias of the edge cluster. It is the prefix of all remote topic names.
        edge: Client of the source cluster.
        central: Client of the target cluster.
    """

    def __init__(self, config: Config) -> None:
        """Create clients for both clusters.

        Args:
            config: Configuration with both clusters.

        Raises:
            ConfigError: No separate central cluster is configured.
        """
        self.alias = config.kafka.edge_alias
        self.edge = Cluster(config.kafka.edge, "edge")
        self.central = Cluster(target_cluster(config), "central")

    def topics(self) -> list[TopicInfo]:
        """Return the edge topics that the mirror copies, sorted by name.

        Returns:
            The description of each topic; empty if the edge has no mirrored topics.

        Raises:
            Unavailable: The edge cluster does not respond, or its brokers disagree on which topics
                exist, for example while a topic is being deleted. The call can be repeated.
        """
        names = [n for n in self.edge.names() if _MIRRORED.fullmatch(n)]
        found = self.edge.topics(names)
        if unsure := [n for n in names if n not in found]:
            raise Unavailable(
                "the edge cluster listed these topics but does not know them: "
                f"{', '.join(unsure)}; check whether they are being deleted"
            )
        return list(found.values())

    def partitions(self) -> list[Partition]:
        """Return all topic-partitions of the edge topics that the mirror copies.

        Returns:
            Topic-partitions at the edge, in the order of `topics`; empty if no topics are mirrored.

        Raises:
            Unavailable: The edge cluster does not respond, or its brokers disagree on which topics
                exist.
        """
        return [Partition(t.name, p) for t in self.topics() for p in t.partitions]

    def positions(self) -> MirrorPositions:
        """Return a new reader for the offsets up to which the mirror has copied records.

        Call `refresh` on the reader to fetch the offsets from the central cluster.

        Returns:
            The reader, which the caller must close.
        """
        return MirrorPositions(self.central.settings, self.alias)

    def remote_partition(self, partition: Partition) -> Partition:
        """Return the central topic-partition to which the mirror copies an edge topic-partition.

        The remote topic name is the edge topic name with the edge alias as prefix. The partition
        number is the same. The clusters are not queried, so the topic-partition may not exist.

        Args:
            partition: Topic-partition at the edge.

        Returns:
            The topic-partition on the central cluster, such as partition 3 of `edge.events.click`.
        """
        return Partition(central_topic(partition.topic, self.alias), partition.partition)

    def existing_remotes(self, partitions: Iterable[Partition]) -> dict[Partition, Partition]:
        """Map edge topic-partitions to their existing copies on the central cluster.

        Args:
            partitions: Topic-partitions at the edge.

        Returns:
            A dict with edge topic-partitions as keys and remote topic-partitions as values. Edge
            topic-partitions without a copy are absent.

        Raises:
            Unavailable: The central cluster does not respond.
        """
        remotes = {p: self.remote_partition(p) for p in partitions}
        topics = self.central.topics({r.topic for r in remotes.values()})
        return {
            p: r
            for p, r in remotes.items()
            if r.topic in topics and r.partition in topics[r.topic].partitions
        }

    def list_central_only(self) -> list[tuple[str, str]]:
        """List the remote topics and topic-partitions that have no counterpart at the edge.

        They remain, for example, after a topic was deleted at the edge.

        Returns:
            Pairs of the edge topic name and a description of the remote topic or topic-partition,
            such as `("events.click", "topic edge.events.click")`; empty if there are none.

        Raises:
            Unavailable: A cluster does not respond.
        """
        prefix = central_topic("", self.alias)
        names = [
            n
            for n in self.central.names()
            if n.startswith(prefix) and _MIRRORED.fullmatch(n.removeprefix(prefix))
        ]
        there = self.central.topics(names)
        at_edge = {
            t.name: t.partitions for t in self.topics()
        }  # read after the central topics: what was copied existed at the edge before
        found = []
        for name, info in sorted(there.items()):
            topic = edge_topic(name, self.alias)
            if topic not in at_edge:
                found.append((topic, f"topic {name}"))
            else:
                more = [p for p in info.partitions if p not in at_edge[topic]]
                found += [(topic, str(Partition(name, p))) for p in more]
        return found
