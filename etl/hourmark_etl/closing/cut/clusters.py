"""Asks the edge, the mirror and the central cluster for the cut: the real `Sites`; and the ledger: the real `Progress`.

A gap is looked for at each check: the edge's log start must not have passed what the mirror was to copy next at the last
check that passed, and topic ids must be the same. A check that fails is not recorded, so it fails again until an operator
decides. With one cluster there is no mirror, and nothing to wait for.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from hourmark.clock import Clock
from hourmark.config_groups import Kafka
from hourmark.errors import Unavailable
from hourmark.kafka import Cluster, Partition, TopicInfo
from hourmark.mirror_positions import MirrorPositions, ahead, gaps, reached, recreated
from hourmark.topics import CONTROL, central_topic, events_topic
from hourmark_etl.ledger import batches
from hourmark_etl.ledger.batches import check_other_topics
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap, last_checks, open_gaps, record_checks
from hourmark_etl.model import Reporter
from hourmark_etl.topics import SiteCluster

_LOG = logging.getLogger(__name__)


class MirrorReader(Protocol):
    """Where the mirror stands; `hourmark.mirror_positions.MirrorPositions` is one."""

    def refresh(self) -> Mapping[Partition, int]:
        """Edge topic-partition → next edge offset to copy."""

    def close(self) -> None:
        """Leave the cluster."""


class TwoSites:
    """Edge and central cluster; one and the same where there is no mirror (`mirror` and `alias` are None)."""

    def __init__(
        self,
        edge: SiteCluster,
        central: SiteCluster,
        mirror: MirrorReader | None,
        alias: str | None,
        database: Database,
        lease: Lease,
        clock: Clock,
    ) -> None:
        self._edge, self._central, self._mirror, self._alias = edge, central, mirror, alias
        self._database, self._lease, self._clock = database, lease, clock
        self._positions: Mapping[Partition, int] = {}
        self._starts: dict[Partition, int] = {}
        self._gaps: dict[str, str] = {}  # at the edge
        self._lost: list[OffsetGap] = []  # of the central topics, by their names at the edge

    @classmethod
    def of(cls, kafka: Kafka, database: Database, lease: Lease, clock: Clock) -> TwoSites:
        """The clusters that the settings name."""
        central = Cluster(kafka.central_cluster, "central")
        if not kafka.mirrored:
            return cls(central, central, None, None, database, lease, clock)
        mirror = MirrorPositions(kafka.central_cluster, kafka.edge_alias)
        return cls(Cluster(kafka.edge, "edge"), central, mirror, kafka.edge_alias, database, lease, clock)

    def close(self) -> None:
        """Leave the clusters."""
        if self._mirror is not None:
            self._mirror.close()

    def check(self, types: Collection[str]) -> None:
        """Look for gaps in the topics of these types, and of promises and reports; remember where the mirror stands.

        What was found of other topics at an earlier check stays known.
        """
        known, self._lost = self._lost, open_gaps(self._database)
        for gap in self._lost:
            if gap not in known:
                _LOG.error(
                    "%s; where a copy of the ledger was restored, `hourmark ledger rebuild` looks for them in staged files; else "
                    "hours of what was in them close by an override alone (`hourmark bucket force`)", gap.what,
                )  # fmt: skip
        topics = [events_topic(t) for t in sorted(types)]
        infos = self._existing(self._edge, CONTROL) | self._edge.topics(topics)
        found = {t: f"{t} does not exist at the edge; what it held may not have been mirrored" for t in topics if t not in infos}
        changed: list[EdgeCheck] = []
        if self._mirror is not None:
            before, self._positions = last_checks(self._database), self._mirror.refresh()
            starts = self._edge.starts(_partitions(infos.values()))
            found |= self._find_gaps(infos, before, starts)
            self._starts |= starts
            copied = {p: self._mirror_next(before.get(p), p, start) for p, start in starts.items() if p.topic not in found}
            recorded = {(p, c.topic_id, c.mirror_next) for p, c in before.items()}
            new = {p: offset for p, offset in copied.items() if (p, infos[p.topic].topic_id, offset) not in recorded}
            changed = self._checks(infos, new)
        self._gaps = {t: why for t, why in self._gaps.items() if t not in infos} | found
        record_checks(self._database, self._lease, changed)

    def _checks(self, infos: Mapping[str, TopicInfo], copied: Mapping[Partition, int]) -> list[EdgeCheck]:
        """That these partitions pass now; `copied`: the next offset to copy."""
        now_ms = self._clock.now_ms()
        return [
            EdgeCheck(
                topic=p.topic,
                partition=p.partition,
                topic_id=infos[p.topic].topic_id,
                mirror_next=offset,
                checked_at_ms=now_ms,
            )
            for p, offset in copied.items()
        ]

    def _mirror_next(self, before: EdgeCheck | None, partition: Partition, start: int) -> int:
        """Before an accepted gap the mirror's position stands until it copies something: the gap stays accepted meanwhile.

        But only as far as the log start: what lies past it is there, and not copied.
        """
        position = self._positions.get(partition, 0)
        return max(position, min(before.mirror_next, start)) if before else position

    def acceptable(self, topics: Collection[str]) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        """Offset gaps of these topics, and checks of where the edge's logs begin and the mirror stands now.

        None at the edge of a topic whose mirror position lies past its end: it is the old topic's, and means nothing for the new
        one.
        """
        checks = self._watched_anew([t for t in topics if t in self._gaps])
        edge = [OffsetGap(topic=t, accepted_at_ms=None, what=self._gaps[t]) for t in sorted({c.topic for c in checks})]
        return [*edge, *(h for h in self._lost if h.topic in topics)], checks

    def _watched_anew(self, topics: Collection[str]) -> list[EdgeCheck]:
        if self._mirror is None or not topics:
            return []
        infos = self._edge.topics(sorted(topics))
        partitions = _partitions(infos.values())
        positions, starts = self._mirror.refresh(), self._edge.starts(partitions)
        stale = {p.topic for p in ahead(self._edge.ends(partitions), positions)}
        return self._checks(infos, {p: max(positions.get(p, 0), starts[p]) for p in partitions if p.topic not in stale})

    def gaps(self) -> dict[str, str]:
        """By edge topic: why records of it may never arrive."""
        found = dict(self._gaps)
        for h in self._lost:
            found[h.topic] = f"{found[h.topic]}; {h.what}" if h.topic in found else h.what
        return found

    def edge_ends(self, topics: Sequence[str]) -> Mapping[Partition, int]:
        """End offsets at the edge, topic by topic in this order."""
        infos = self._existing(self._edge, topics)
        ends: dict[Partition, int] = {}
        for topic in topics:
            ends |= self._edge.ends(_partitions([infos[topic]]))
        return ends

    def not_mirrored(self, cut: Mapping[Partition, int]) -> dict[str, str]:
        """By edge topic: what the mirror has yet to copy below the cut."""
        if self._mirror is None:
            return {}
        self._positions = self._mirror.refresh()
        behind = {b.partition.topic: f"mirror: {b}" for b in reached(cut, self._starts, self._positions)}
        return behind | {p.topic: self._gaps[p.topic] for p in cut if p.topic in self._gaps}

    def central_ends(self, topics: Collection[str]) -> Mapping[Partition, int]:
        """High watermarks, on the central cluster, of the topics mirrored from these.

        Not the last stable offsets: the mirror's position may be committed before the marker of the very transaction reaches
        another partition, and then those would leave its records out. TopicReplaced if one is not the topic that is staged.
        """
        infos = self._existing(self._central, [central_topic(t, self._alias) for t in topics])
        check_other_topics(self._database, infos.values())
        return self._central.ends(_partitions(infos.values()), committed=False)

    def _find_gaps(
        self, infos: Mapping[str, TopicInfo], before: Mapping[Partition, EdgeCheck], starts: Mapping[Partition, int]
    ) -> dict[str, str]:
        before = {p: check for p, check in before.items() if p in starts}  # not of partitions that are gone
        previous_ids = {p.topic: check.topic_id for p, check in before.items()}
        found = {
            topic: f"{topic} was deleted and recreated at the edge since the last check; what it held may not have been mirrored"
            for topic in recreated(previous_ids, {name: info.topic_id for name, info in infos.items()})
        }
        previous = {p: before[p].mirror_next if p in before else 0 for p in starts}
        for gap in gaps(previous, starts):
            found[gap.partition.topic] = str(gap)
        ends = self._edge.ends(list(starts))
        for partition in ahead(ends, self._positions):
            found[partition.topic] = f"{partition}: the mirror's position {self._positions[partition]} is past the edge's end"
        return found

    def _existing(self, cluster: SiteCluster, topics: Sequence[str]) -> dict[str, TopicInfo]:
        infos = cluster.topics(topics)
        if missing := [t for t in topics if t not in infos]:
            raise Unavailable(f"the {cluster.name} cluster lacks the topics {missing}; run `hourmark types apply`")
        return infos


def _partitions(infos: Collection[TopicInfo]) -> list[Partition]:
    return [Partition(info.name, number) for info in infos for number in info.partitions]


@dataclasses.dataclass(frozen=True)
class LedgerProgress:
    """What a cut asks of the ledger: the real `Progress`."""

    database: Database
    cluster_id: str

    def reporters(self) -> list[Reporter]:
        """Latest staged reports."""
        return batches.reporters(self.database)

    def not_staged(self, ends: Mapping[Partition, int]) -> list[str]:
        """What is below these central ends and not yet staged."""
        positions = self._positions()
        return [
            f"staging: {p} is staged up to {positions.get(p, 0)}, the cut is {end}"
            for p, end in sorted(ends.items())
            if positions.get(p, 0) < end
        ]

    def staged_next(self, partition: Partition) -> int:
        """The next offset to stage."""
        return self._positions().get(partition, 0)

    def _positions(self) -> dict[Partition, int]:
        return {p.of: p.next_offset for p in batches.positions(self.database, self.cluster_id)}
