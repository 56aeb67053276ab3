"""How far the mirror is, per topic-partition."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hourmark.config import Config
from hourmark.kafka import Cluster, Partition
from hourmark.mirror_positions import MirrorPositions
from hourmark.topics import central_topic
from mirror.properties import target_of
from mirror.remote_topics import mirrored_topics


@dataclasses.dataclass(frozen=True, slots=True)
class Lag:
    """One edge topic-partition; offsets are the next to read. `central_end` None: there is no remote topic-partition.

    The remote end is higher than the count of records by one commit marker for each transaction.
    """

    topic: str
    partition: int
    edge_start: int
    edge_end: int
    position: int | None
    central_end: int | None

    @property
    def records(self) -> int:
        """Not yet copied; negative where the position lies past the edge's end, which means that it is stale."""
        return self.edge_end - max(self.position or 0, self.edge_start)


def measure(config: Config) -> list[Lag]:
    """The lag of every mirrored topic-partition; Unavailable when a cluster does not answer."""
    central_settings, alias = target_of(config), config.kafka.edge_alias
    edge, central = Cluster(config.kafka.edge, "edge"), Cluster(central_settings, "central")
    partitions = [Partition(t.name, p) for t in mirrored_topics(edge) for p in t.partitions]
    positions_reader = MirrorPositions(central_settings, alias)
    try:
        positions = positions_reader.refresh()  # before the ends: so a lag below 0 is never a race
    finally:
        positions_reader.close()
    ends, starts = edge.ends(partitions), edge.starts(partitions)
    remote_ends = central.ends(existing(central, [remote(p, alias) for p in partitions]))
    return [
        Lag(p.topic, p.partition, starts[p], ends[p], positions.get(p), remote_ends.get(remote(p, alias))) for p in partitions
    ]


def remote(partition: Partition, edge_alias: str) -> Partition:
    """The topic-partition on the central cluster: same number, topic with the source's prefix."""
    return Partition(central_topic(partition.topic, edge_alias), partition.partition)


def existing(cluster: Cluster, partitions: Sequence[Partition]) -> list[Partition]:
    """Those that the cluster has."""
    topics = cluster.topics({p.topic for p in partitions})
    return [p for p in partitions if p.topic in topics and p.partition in topics[p.topic].partitions]
