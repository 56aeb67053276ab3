"""Both clusters of a configuration, and which topics the mirror carries from one to the other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hourmark.config import Config
from hourmark.errors import Unavailable
from hourmark.kafka import Cluster, Partition, TopicInfo
from hourmark.mirror_positions import MirrorPositions
from hourmark.topics import central_topic
from hourmark_mirror.properties import TOPICS, target_of

_MIRRORED: Final = re.compile("|".join(f"(?:{pattern})" for pattern in TOPICS))


class Sites:
    """ConfigError where one cluster is both."""

    def __init__(self, config: Config) -> None:
        self.alias = config.kafka.edge_alias
        self.edge = Cluster(config.kafka.edge, "edge")
        self.central = Cluster(target_of(config), "central")

    def topics(self) -> list[TopicInfo]:
        """The edge's topics that the mirror copies, by name. Unavailable while brokers disagree on which those are."""
        names = [n for n in self.edge.names() if _MIRRORED.fullmatch(n)]
        found = self.edge.topics(names)
        if unsure := [n for n in names if n not in found]:
            raise Unavailable(
                f"topics of the edge cluster were listed, and then not known: {', '.join(unsure)}; are they being deleted?"
            )
        return list(found.values())

    def partitions(self) -> list[Partition]:
        """Of those topics."""
        return [Partition(t.name, p) for t in self.topics() for p in t.partitions]

    def positions(self) -> MirrorPositions:
        """A new reader of where the mirror stands."""
        return MirrorPositions(self.central.settings, self.alias)

    def remote(self, partition: Partition) -> Partition:
        """The topic-partition on the central cluster: same number, topic with the source's prefix."""
        return Partition(central_topic(partition.topic, self.alias), partition.partition)

    def remote_of(self, partitions: Iterable[Partition]) -> dict[Partition, Partition]:
        """Edge topic-partition → the one on the central cluster, of those that exist there."""
        remotes = {p: self.remote(p) for p in partitions}
        topics = self.central.topics({r.topic for r in remotes.values()})
        return {p: r for p, r in remotes.items() if r.topic in topics and r.partition in topics[r.topic].partitions}
