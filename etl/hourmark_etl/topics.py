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
    """The names of all topics on the central Kafka cluster that the ETL reads.

    A mirror copies the topics of each edge site to the central cluster and prefixes their names
    with the site's alias. There are event topics (one per event type and site), and control topics,
    which contain audit records and host reports.

    Attributes:
        aliases: Maps each site name to its topic prefix, or to None if the site is not mirrored.
        types: Maps the name of each event topic to its event type.
    """

    aliases: Mapping[str, str | None]
    types: Mapping[str, str]

    @classmethod
    def from_settings(cls, kafka: KafkaSettings, types: Collection[str] = ()) -> CentralTopicNames:
        """Create the topic names of all configured sites (edge clusters).

        Args:
            kafka: The Kafka settings with all sites.
            types: Event types whose topics are included. Control topics (audit records and host
                reports) are always included.

        Returns:
            The names. The topics need not exist.
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
        """Return the topics that contain audit records.

        An audit record states how many events a byte range of a log file contains.

        Returns:
            A mapping from topic name to site name, with one topic per site (edge cluster).
        """
        return {central_topic(AUDIT, alias): site for site, alias in self.aliases.items()}

    @property
    def hosts(self) -> frozenset[str]:
        """Return the topics that contain the progress reports of hosts and delivery services.

        Returns:
            Topic names; there is one topic per site (edge cluster).
        """
        return frozenset(central_topic(HOSTS, alias) for alias in self.aliases.values())

    @property
    def all(self) -> list[str]:
        """Return the names of all topics that the ETL reads.

        Returns:
            Event topics, then topics of audit records, then topics of host reports.
        """
        return [*self.types, *self.audits, *sorted(self.hosts)]

    def for_shard(self, shard: str) -> list[str]:
        """Return the names of the topics that a shard copies from Kafka to storage.

        A shard is a group of event types with its own Kafka consumer. Call this method on an object
        that contains only the event types of the shard.

        Args:
            shard: Name of the shard. The default shard also copies the control topics, which
                contain audit records and host reports.

        Returns:
            All event topics of this object, and the control topics for the default shard.
        """
        return self.all if shard == DEFAULT_SHARD else [*self.types]

    def by_type(self) -> dict[str, list[str]]:
        """Return the event topics of each event type.

        Returns:
            A mapping from event type to topic names, one for each site (edge cluster).
        """
        found: dict[str, list[str]] = {}
        for topic, event_type in self.types.items():
            found.setdefault(event_type, []).append(topic)
        return found

    def at_edge(self, topic: str) -> str:
        """Return the name that a central topic has on its edge cluster.

        The method removes the prefix that the mirror has added.

        Args:
            topic: Topic name on the central cluster.

        Raises:
            ValueError: The topic belongs to a site that is not configured.
        """
        alias, dot, _ = topic.partition(".")
        return edge_topic(
            topic, alias if dot and alias in self.aliases.values() else self.aliases[FIRST_SITE]
        )

    def type_of(self, topic: str) -> str | None:
        """Return the event type of a topic on the central cluster.

        Args:
            topic: Topic name on the central cluster.

        Returns:
            The event type; None for topics of audit records and host reports.

        Raises:
            ValueError: The topic belongs to a site that is not configured.
        """
        return event_type_of_topic(self.at_edge(topic))


def resolve_positions(
    central: Cluster,
    topics: Collection[str],
    known_positions: Collection[StagingPosition],
    shard: str,
    required: Collection[str],
) -> tuple[list[StagingPosition], list[str]]:
    """Determine the offset at which staging of each topic-partition starts.

    Staging copies records from Kafka to storage. Staging continues at the position in the ledger
    (the ETL's state database). A partition without one starts at offset 0, as do all partitions of
    a topic that was recreated, because positions are matched by Kafka topic id.

    Args:
        central: The central cluster.
        topics: Names of the topics to stage.
        known_positions: Staging positions in the ledger.
        shard: Name of the shard (the set of topics that one consumer reads) to store in new
            positions.
        required: Names of topics that must exist.

    Returns:
        A pair: the positions of all partitions of existing topics, and the sorted names of missing
        topics.

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
    """Protocol for the Kafka metadata queries that are needed to close hourly buckets.

    `hourmark.kafka.clients.Cluster` implements it.
    """

    @property
    def name(self) -> str:
        """Return the human-readable name of the cluster, for messages."""

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return the metadata of topics.

        Args:
            names: Names of the topics.

        Returns:
            A mapping from topic name to metadata. It omits topics that do not exist.
        """

    def starts(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return the log start offset of each topic-partition.

        Args:
            partitions: The topic-partitions to query, all of which must exist.

        Returns:
            Log start offset by topic-partition, one entry for each of `partitions`.
        """

    def ends(
        self, partitions: Sequence[Partition], *, committed: bool = True
    ) -> Mapping[Partition, int]:
        """Return the end offset (exclusive) of each topic-partition.

        Args:
            partitions: The topic-partitions to query, all of which must exist.
            committed: True for last stable offsets, False for high watermarks.

        Returns:
            End offset by topic-partition, one entry for each of `partitions`.
        """


class CentralCluster(SiteCluster, Protocol):
    """Protocol for the Kafka metadata queries that the ETL sends to the central cluster.

    In addition to the queries of `SiteCluster`, it returns the cluster id and detects logs that
    have lost records.
    """

    def cluster_id(self) -> str:
        """Return the id that Kafka assigned to the cluster when it was formatted."""

    def truncated(self, begins: Mapping[Partition, tuple[int, int]]) -> Collection[Partition]:
        """Return the topic-partitions whose log has lost records that were already read.

        The broker compares leader epochs (KIP-320).

        Args:
            begins: Maps each topic-partition to the offset after the last record read, and the
                leader epoch of that record.

        Returns:
            The truncated topic-partitions; empty if no record was lost.
        """
