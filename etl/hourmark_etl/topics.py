"""The topics of the central cluster that the ETL reads, their starting positions, and the protocols
for querying clusters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from hourmark.config.groups import KafkaSettings
from hourmark.kafka.clients import Cluster, Partition, TopicInfo
from hourmark.kafka.topic_names import (
    AUDIT,
    HOSTS,
    central_topic,
    edge_topic,
    event_type_of_topic,
    events_topic,
)
from hourmark_etl.errors import EtlStop
from hourmark_etl.model import DEFAULT_SHARD, FIRST_SITE, StagingPosition


@dataclasses.dataclass(frozen=True)
class CentralTopicNames:
    """The names of all topics that the ETL reads from the central cluster.

    Attributes:
        aliases: By site, the prefix of the site's topics; None if the site is not mirrored.
        types: Event type of each event topic, by topic name.
    """

    aliases: Mapping[str, str | None]
    types: Mapping[str, str]

    @classmethod
    def from_settings(cls, kafka: KafkaSettings, types: Collection[str] = ()) -> CentralTopicNames:
        """Create the topic names of all configured sites.

        Args:
            kafka: The Kafka settings with all sites.
            types: Event types whose topics are included. The control topics are always included.
        """
        first = kafka.edge_alias if kafka.mirrored else None
        aliases = {FIRST_SITE: first, **{alias: alias for alias in kafka.further_edges}}
        return cls(
            aliases,
            {
                central_topic(events_topic(t), alias): t
                for t in sorted(types)
                for alias in aliases.values()
            },
        )

    @property
    def audits(self) -> dict[str, str]:
        """Return the names of the audit topics, each with the name of its site."""
        return {central_topic(AUDIT, alias): site for site, alias in self.aliases.items()}

    @property
    def hosts(self) -> frozenset[str]:
        """Return the names of the topics that contain host reports."""
        return frozenset(central_topic(HOSTS, alias) for alias in self.aliases.values())

    @property
    def all(self) -> list[str]:
        """Return the names of all topics: events, audit records and host reports."""
        return [*self.types, *self.audits, *sorted(self.hosts)]

    def for_shard(self, shard: str) -> list[str]:
        """Return the names of the topics that the consumer of a shard stages.

        The consumer of the default shard also stages the control topics, which are those of audit
        records and host reports.
        """
        return self.all if shard == DEFAULT_SHARD else [*self.types]

    def by_type(self) -> dict[str, list[str]]:
        """Return the topic names of each event type."""
        found: dict[str, list[str]] = {}
        for topic, event_type in self.types.items():
            found.setdefault(event_type, []).append(topic)
        return found

    def at_edge(self, topic: str) -> str:
        """Return the name that a topic of the central cluster has on its edge cluster.

        The mirror adds the site's prefix to topic names; this removes it.

        Raises:
            ValueError: The topic belongs to a site that is not configured.
        """
        alias, dot, _ = topic.partition(".")
        return edge_topic(
            topic, alias if dot and alias in self.aliases.values() else self.aliases[FIRST_SITE]
        )

    def type_of(self, topic: str) -> str | None:
        """Return the event type of a central topic; None for a control topic."""
        return event_type_of_topic(self.at_edge(topic))


def resolve_positions(
    central: Cluster,
    topics: Collection[str],
    known_positions: Collection[StagingPosition],
    shard: str,
    required: Collection[str],
) -> tuple[list[StagingPosition], list[str]]:
    """Return where staging of each partition starts, and which topics do not exist.

    Staging continues at the known position of a partition, and starts at offset 0 if there is none.

    Args:
        central: The central cluster.
        topics: Names of the topics to stage.
        known_positions: Staging positions in the ledger.
        shard: Name of the shard that is stored in new positions.
        required: Names of topics that must exist.

    Returns:
        The positions of all partitions, and the sorted names of missing topics.

    Raises:
        EtlStop: A required topic does not exist.
    """
    infos = central.topics(topics)
    absent = sorted(set(topics) - set(infos))
    if missing := [t for t in absent if t in required]:
        raise EtlStop(
            f"the {central.name} cluster lacks the topics {missing}; run `hourmark types "
            "apply`, which creates them"
        )
    by_id = {(p.topic_id, p.partition): p for p in known_positions}
    cluster_id = central.cluster_id()
    found = [
        by_id.get(
            (info.topic_id, partition),
            StagingPosition(
                cluster_id=cluster_id,
                topic_id=info.topic_id,
                topic=info.name,
                partition=partition,
                next_offset=0,
                shard=shard,
            ),
        )
        for info in infos.values()
        for partition in info.partitions
    ]
    return found, absent


class SiteCluster(Protocol):
    """A protocol for the Kafka metadata queries that closing needs; implemented by `Cluster`."""

    @property
    def name(self) -> str:
        """Return the readable name of the cluster."""

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return the metadata of the given topics by name; topics that do not exist are omitted."""

    def starts(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return the log start offset of each partition."""

    def ends(
        self, partitions: Sequence[Partition], *, committed: bool = True
    ) -> Mapping[Partition, int]:
        """Return the end offset of each partition.

        Args:
            partitions: The partitions to query.
            committed: True for last stable offsets, False for high watermarks.
        """


class CentralCluster(SiteCluster, Protocol):
    """A protocol for the metadata queries on the central Kafka cluster that closing needs."""

    def cluster_id(self) -> str:
        """Return the Kafka cluster id."""

    def truncated(self, begins: Mapping[Partition, tuple[int, int]]) -> Collection[Partition]:
        """Return the partitions whose log lost records that had already been read.

        Args:
            begins: By partition, the offset after the last record read, and the leader epoch of
                that record.
        """
