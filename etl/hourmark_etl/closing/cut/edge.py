"""One site of a cut: its edge cluster, and the mirror from there to the central cluster.

Each check searches for gaps. There is a gap if the log start of an edge partition has passed the
mirror's position at the last successful check, or if a topic id has changed. A failed check is not
recorded, so it fails again until an operator accepts the gap. With a single cluster there is no
mirror and nothing to wait for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition, TopicInfo
from hourmark.kafka.mirror import find_gaps, partitions_ahead, partitions_behind, recreated_topics
from hourmark.kafka.topic_names import CONTROL, central_topic, events_topic
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.partitions.offset_gaps import (
    EdgeCheck,
    OffsetGap,
    read_last_checks,
    record_checks,
)
from hourmark_etl.model import FIRST_SITE
from hourmark_etl.topics import SiteCluster


class MirrorReader(Protocol):
    """Interface that returns the offsets up to which a mirror has copied an edge cluster.

    `hourmark.kafka.mirror.MirrorPositions` is the implementation.
    """

    def refresh(self) -> Mapping[Partition, int]:
        """Read and return the mirror's committed positions.

        Returns:
            The next offset to copy for each topic-partition of the edge cluster.
        """

    def close(self) -> None:
        """Close the connection for reading the mirror's positions."""


@dataclasses.dataclass(kw_only=True)
class EdgeSite:
    """The edge cluster of one site, and the mirror that copies it to the central cluster.

    Attributes:
        edge: The edge cluster.
        mirror: Reader of the mirror's positions; None if the edge is also the central cluster.
        alias: Prefix of the site's topics on the central cluster; None without a mirror.
        database: Database of the ledger.
        lease: Lease of the closer, the process that closes buckets.
        clock: Clock for the timestamps of recorded checks.
        site: Site id under which the offsets of the site's audit records are stored.
        gaps: Maps each topic name at the edge to the human-readable reason why records may be lost,
            according to the last `check`. Empty if no loss is known.
    """

    edge: SiteCluster
    mirror: MirrorReader | None
    alias: str | None
    database: Database
    lease: Lease
    clock: Clock
    site: str = FIRST_SITE
    gaps: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # by edge topic: why its records may never arrive
    _positions: Mapping[Partition, int] = dataclasses.field(default_factory=dict)
    _starts: dict[Partition, int] = dataclasses.field(default_factory=dict)

    def close(self) -> None:
        """Close the connection for reading the mirror's positions, if there is a mirror."""
        if self.mirror is not None:
            self.mirror.close()

    def check(self, types: Collection[str]) -> None:
        """Check the site's topics for records that may have been lost before they were mirrored.

        The check covers the topics of the given event types and the control topics (audit records
        and host reports). The result is stored in `gaps`; entries of other topics are kept. The
        mirror's positions are stored in the ledger (the ETL's state database) for the next check.

        Args:
            types: Event types to check.

        Raises:
            Unavailable: A cluster does not answer, or a control topic does not exist.
            StaleDriver: Another closer has taken over the lease.
        """
        topics = [events_topic(t) for t in sorted(types)]
        infos = require_topics(self.edge, CONTROL) | self.edge.topics(topics)
        found = {
            t: f"{t} does not exist at the edge; what it held may not have been mirrored; "
            "`hourmark types apply` creates it"
            for t in topics
            if t not in infos
        }
        changed: list[EdgeCheck] = []
        if self.mirror is not None:
            before, self._positions = self._last_checks(), self.mirror.refresh()
            starts = self.edge.starts(list_partitions(infos.values()))
            found |= self._find_gaps(infos, before, starts)
            self._starts |= starts
            copied = {
                p: self._checked_position(before.get(p), p, start)
                for p, start in starts.items()
                if p.topic not in found
            }
            recorded = {(p, c.topic_id, c.mirror_next) for p, c in before.items()}
            new = {
                p: offset
                for p, offset in copied.items()
                if (p, infos[p.topic].topic_id, offset) not in recorded
            }
            changed = self._create_checks(infos, new)
        self.gaps = {t: why for t, why in self.gaps.items() if t not in infos} | found
        record_checks(self.database, self.lease, changed)

    def find_acceptable_gaps(
        self, topics: Collection[str]
    ) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        """Return this site's gaps (possibly lost records) that an operator's override may accept.

        A gap is omitted while the mirror's position is past the end of the topic. Such a position
        belongs to a deleted topic of the same name.

        Args:
            topics: Topic names at the edge.

        Returns:
            A pair of the gaps and the edge checks, which contain positions from which later checks
            start. Store the edge checks when the gaps are accepted, so that the gaps are no longer
            reported. Both lists are empty if there is no gap.

        Raises:
            Unavailable: The edge cluster or the mirror's position cannot be read.
        """
        asked = sorted(t for t in topics if t in self.gaps)
        if self.mirror is None or not asked:
            return [], []
        infos = self.edge.topics(asked)
        found = list_partitions(infos.values())
        positions, starts = self.mirror.refresh(), self.edge.starts(found)
        stale = {p.topic for p in partitions_ahead(self.edge.ends(found), positions)}
        fresh = {p: max(positions.get(p, 0), starts[p]) for p in found if p.topic not in stale}
        accepted = [
            OffsetGap(topic=t, accepted_at_ms=None, what=self.gaps[t], lost_end=False)
            for t in sorted({p.topic for p in fresh})
        ]
        return accepted, self._create_checks(infos, fresh)

    def ends(self, topics: Sequence[str]) -> dict[Partition, int]:
        """Return the end offsets of topics on the edge cluster.

        Args:
            topics: Topic names at the edge. They are queried one after the other, in this order.

        Returns:
            End offset of each partition on the edge cluster.

        Raises:
            Unavailable: The cluster does not answer or lacks a topic.
        """
        infos = require_topics(self.edge, topics)
        ends: dict[Partition, int] = {}
        for topic in topics:
            ends |= self.edge.ends(list_partitions([infos[topic]]))
        return ends

    def find_unmirrored_topics(self, cut: Mapping[Partition, int]) -> dict[str, str]:
        """Return the topics that the mirror has not yet copied up to the given end offsets.

        Topics that may have lost records are included.

        Args:
            cut: End offset of each partition on the edge cluster.

        Returns:
            Human-readable reasons, keyed by topic name at the edge; empty if everything was copied
            or if there is no mirror.
        """
        if self.mirror is None:
            return {}
        self._positions = self.mirror.refresh()
        behind = {
            b.partition.topic: f"mirror: {b}"
            for b in partitions_behind(cut, self._starts, self._positions)
        }
        return behind | {p.topic: self.gaps[p.topic] for p in cut if p.topic in self.gaps}

    def central_names(self, topics: Collection[str]) -> list[str]:
        """Convert topic names of this edge cluster to their names on the central cluster.

        Args:
            topics: Topic names at the edge.

        Returns:
            The names in the same order. They have the site's prefix if there is a mirror.
        """
        return [central_topic(t, self.alias) for t in topics]

    def _ledger_topic(self, topic: str) -> str:
        return topic if self.site == FIRST_SITE else central_topic(topic, self.alias)

    def _last_checks(self) -> dict[Partition, EdgeCheck]:
        prefix = self._ledger_topic("")
        return {
            dataclasses.replace(p, topic=p.topic.removeprefix(prefix)): check
            for p, check in read_last_checks(self.database).items()
            if p.topic.startswith(prefix)
        }

    def _create_checks(
        self, infos: Mapping[str, TopicInfo], copied: Mapping[Partition, int]
    ) -> list[EdgeCheck]:
        now_ms = self.clock.now_ms()
        return [
            EdgeCheck(
                topic=self._ledger_topic(p.topic),
                partition=p.partition,
                topic_id=infos[p.topic].topic_id,
                mirror_next=offset,
                checked_at_ms=now_ms,
            )
            for p, offset in copied.items()
        ]

    def _checked_position(self, before: EdgeCheck | None, partition: Partition, start: int) -> int:
        # Return the mirror's position, or the last check's if the mirror has not moved past it.
        # After a gap was accepted, the mirror's position lies before it until the mirror copies a
        # record. The result never exceeds the log start: records after it exist but are not copied
        # yet.
        position = self._positions.get(partition, 0)
        return max(position, min(before.mirror_next, start)) if before else position

    def _find_gaps(
        self,
        infos: Mapping[str, TopicInfo],
        before: Mapping[Partition, EdgeCheck],
        starts: Mapping[Partition, int],
    ) -> dict[str, str]:
        before = {
            p: check for p, check in before.items() if p in starts
        }  # without partitions that no longer exist
        previous_ids = {p.topic: check.topic_id for p, check in before.items()}
        found = {
            topic: (
                f"{topic} was deleted and recreated at the edge since the last check; what it "
                "held may not have been mirrored"
            )
            for topic in recreated_topics(
                previous_ids, {name: info.topic_id for name, info in infos.items()}
            )
        }
        previous = {p: before[p].mirror_next if p in before else 0 for p in starts}
        for gap in find_gaps(previous, starts):
            found[gap.partition.topic] = str(gap)
        ends = self.edge.ends(list(starts))
        for partition in partitions_ahead(ends, self._positions):
            found[partition.topic] = (
                f"{partition}: the mirror's position {self._positions[partition]} is past "
                "the edge's end"
            )
        return found


def require_topics(cluster: SiteCluster, topics: Sequence[str]) -> dict[str, TopicInfo]:
    """Return the metadata of topics that must exist.

    Args:
        cluster: The cluster to query.
        topics: Names of the topics.

    Returns:
        Metadata by topic name.

    Raises:
        Unavailable: A topic does not exist, or the cluster does not answer.
    """
    infos = cluster.topics(topics)
    if missing := [t for t in topics if t not in infos]:
        raise Unavailable(
            f"the {cluster.name} cluster lacks the topics {missing}; run `hourmark types apply`"
        )
    return infos


def list_partitions(infos: Collection[TopicInfo]) -> list[Partition]:
    """Return the partitions of several Kafka topics.

    Args:
        infos: Metadata of the topics.

    Returns:
        All topic-partitions, in the order of `infos`.
    """
    return [Partition(info.name, number) for info in infos for number in info.partitions]
