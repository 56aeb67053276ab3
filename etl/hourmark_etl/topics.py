"""The central cluster's topics as the ETL sees them: which to read, under which ids, from where;
and what is asked of clusters.
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
from hourmark_etl.model import DEFAULT_SHARD, FIRST_SITE, Position


@dataclasses.dataclass(frozen=True)
class CentralTopics:
    """Names on the central cluster. `aliases`: by site, the prefix of its topics, None where there
    is no mirror; `types` maps event topics to their types.
    """

    aliases: Mapping[str, str | None]
    types: Mapping[str, str]

    @classmethod
    def of(cls, kafka: KafkaSettings, types: Collection[str] = ()) -> CentralTopics:
        """The control topics, and those of these types, of every site."""
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
        """Where audit records arrive: topic → site."""
        return {central_topic(AUDIT, alias): site for site, alias in self.aliases.items()}

    @property
    def hosts(self) -> frozenset[str]:
        """Where host reports arrive."""
        return frozenset(central_topic(HOSTS, alias) for alias in self.aliases.values())

    @property
    def all(self) -> list[str]:
        """Everything that is staged."""
        return [*self.types, *self.audits, *sorted(self.hosts)]

    def of_shard(self, shard: str) -> list[str]:
        """What the shard's query stages: the types' topics; promises and reports go with the
        default shard, for all.
        """
        return self.all if shard == DEFAULT_SHARD else [*self.types]

    def of_types(self) -> dict[str, list[str]]:
        """The topics of each type."""
        found: dict[str, list[str]] = {}
        for topic, event_type in self.types.items():
            found.setdefault(event_type, []).append(topic)
        return found

    def at_edge(self, topic: str) -> str:
        """The topic's name at its edge; ValueError for one of a site that is not configured."""
        alias, dot, _ = topic.partition(".")
        return edge_topic(
            topic, alias if dot and alias in self.aliases.values() else self.aliases[FIRST_SITE]
        )

    def type_of(self, topic: str) -> str | None:
        """The type whose central topic this is; None for a control topic."""
        return event_type_of_topic(self.at_edge(topic))


def new_positions(
    central: Cluster,
    topics: Collection[str],
    known: Collection[Position],
    shard: str,
    required: Collection[str],
) -> tuple[list[Position], list[str]]:
    """Return positions of all partitions of the topics, and the topics that are missing.

    The positions are the ledger's, and offset 0, for the shard, for those new to it. EtlStop if one
    of `required` is missing.
    """
    infos = central.topics(topics)
    absent = sorted(set(topics) - set(infos))
    if missing := [t for t in absent if t in required]:
        raise EtlStop(
            f"the {central.name} cluster lacks the topics {missing}; run `hourmark types "
            "apply`, which makes them"
        )
    by_id = {(p.topic_id, p.partition): p for p in known}
    cluster_id = central.cluster_id()
    found = [
        by_id.get(
            (info.topic_id, partition),
            Position(
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
    """`hourmark.kafka.clients.Cluster`, as far as the ETL asks one."""

    @property
    def name(self) -> str:
        """Human-readable."""

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of `names` that exist."""

    def starts(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Log start offsets."""

    def ends(
        self, partitions: Sequence[Partition], *, committed: bool = True
    ) -> Mapping[Partition, int]:
        """Last stable offsets, or high watermarks."""


class Central(SiteCluster, Protocol):
    """The central one."""

    def cluster_id(self) -> str:
        """The id the cluster was formatted with."""

    def truncated(self, begins: Mapping[Partition, tuple[int, int]]) -> Collection[Partition]:
        """Those whose logs lost records before this offset, by the leader epoch of the record
        before it.
        """
