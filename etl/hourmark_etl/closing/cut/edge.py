"""One site as a cut asks it: its edge, and the mirror from there to the central cluster.

A gap is looked for at each check: the edge's log start must not have passed what the mirror was to
copy next at the last check that passed, and topic ids must be the same. A check that fails is not
recorded, so it fails again until an operator decides. With one cluster there is no mirror, and
nothing to wait for.
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
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap, last_checks, record_checks
from hourmark_etl.model import FIRST_SITE
from hourmark_etl.topics import SiteCluster


class MirrorReader(Protocol):
    """Where the mirror stands; `hourmark.kafka.mirror.MirrorPositions` is one."""

    def refresh(self) -> Mapping[Partition, int]:
        """Edge topic-partition → next edge offset to copy."""

    def close(self) -> None:
        """Leave the cluster."""


@dataclasses.dataclass(kw_only=True)
class EdgeSite:
    """An edge, and its mirror; `mirror` and `alias` are None where the edge is the central cluster,
    too.

    `site`: its name in offsets. The ledger keeps checks of a further site's topics under their
    central names.
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
    )  # by topic at the edge: why records may never arrive
    _positions: Mapping[Partition, int] = dataclasses.field(default_factory=dict)
    _starts: dict[Partition, int] = dataclasses.field(default_factory=dict)

    def close(self) -> None:
        """Leave the cluster."""
        if self.mirror is not None:
            self.mirror.close()

    def check(self, types: Collection[str]) -> None:
        """Look for gaps in the topics of these types, and of promises and reports; remember where
        the mirror stands.

        What was found of other topics at an earlier check stays known.
        """
        topics = [events_topic(t) for t in sorted(types)]
        infos = existing(self.edge, CONTROL) | self.edge.topics(topics)
        found = {
            t: f"{t} does not exist at the edge; what it held may not have been mirrored"
            for t in topics
            if t not in infos
        }
        changed: list[EdgeCheck] = []
        if self.mirror is not None:
            before, self._positions = self._last_checks(), self.mirror.refresh()
            starts = self.edge.starts(partitions(infos.values()))
            found |= self._find_gaps(infos, before, starts)
            self._starts |= starts
            copied = {
                p: self._mirror_next(before.get(p), p, start)
                for p, start in starts.items()
                if p.topic not in found
            }
            recorded = {(p, c.topic_id, c.mirror_next) for p, c in before.items()}
            new = {
                p: offset
                for p, offset in copied.items()
                if (p, infos[p.topic].topic_id, offset) not in recorded
            }
            changed = self._checks(infos, new)
        self.gaps = {t: why for t, why in self.gaps.items() if t not in infos} | found
        record_checks(self.database, self.lease, changed)

    def acceptable(self, topics: Collection[str]) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        """Offset gaps of these topics, and checks of where the edge's logs begin and the mirror
        stands now.

        None of a topic whose mirror position lies past its end: it is the old topic's, and means
        nothing for the new one.
        """
        asked = sorted(t for t in topics if t in self.gaps)
        if self.mirror is None or not asked:
            return [], []
        infos = self.edge.topics(asked)
        found = partitions(infos.values())
        positions, starts = self.mirror.refresh(), self.edge.starts(found)
        stale = {p.topic for p in partitions_ahead(self.edge.ends(found), positions)}
        fresh = {p: max(positions.get(p, 0), starts[p]) for p in found if p.topic not in stale}
        accepted = [
            OffsetGap(topic=t, accepted_at_ms=None, what=self.gaps[t], lost_end=False)
            for t in sorted({p.topic for p in fresh})
        ]
        return accepted, self._checks(infos, fresh)

    def ends(self, topics: Sequence[str]) -> dict[Partition, int]:
        """End offsets, topic by topic in this order."""
        infos = existing(self.edge, topics)
        ends: dict[Partition, int] = {}
        for topic in topics:
            ends |= self.edge.ends(partitions([infos[topic]]))
        return ends

    def not_mirrored(self, cut: Mapping[Partition, int]) -> dict[str, str]:
        """By topic: what the mirror has yet to copy below the cut."""
        if self.mirror is None:
            return {}
        self._positions = self.mirror.refresh()
        behind = {
            b.partition.topic: f"mirror: {b}"
            for b in partitions_behind(cut, self._starts, self._positions)
        }
        return behind | {p.topic: self.gaps[p.topic] for p in cut if p.topic in self.gaps}

    def central(self, topics: Collection[str]) -> list[str]:
        """The names of these topics on the central cluster."""
        return [central_topic(t, self.alias) for t in topics]

    def _kept_as(self, topic: str) -> str:
        return topic if self.site == FIRST_SITE else central_topic(topic, self.alias)

    def _last_checks(self) -> dict[Partition, EdgeCheck]:
        prefix = self._kept_as("")
        return {
            dataclasses.replace(p, topic=p.topic.removeprefix(prefix)): check
            for p, check in last_checks(self.database).items()
            if p.topic.startswith(prefix)
        }

    def _checks(
        self, infos: Mapping[str, TopicInfo], copied: Mapping[Partition, int]
    ) -> list[EdgeCheck]:
        """That these partitions pass now; `copied`: the next offset to copy."""
        now_ms = self.clock.now_ms()
        return [
            EdgeCheck(
                topic=self._kept_as(p.topic),
                partition=p.partition,
                topic_id=infos[p.topic].topic_id,
                mirror_next=offset,
                checked_at_ms=now_ms,
            )
            for p, offset in copied.items()
        ]

    def _mirror_next(self, before: EdgeCheck | None, partition: Partition, start: int) -> int:
        """Before an accepted gap the mirror's position stands until it copies something: the gap
        stays accepted meanwhile.

        But only as far as the log start: what lies past it is there, and not copied.
        """
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
        }  # not of partitions that are gone
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


def existing(cluster: SiteCluster, topics: Sequence[str]) -> dict[str, TopicInfo]:
    """These topics; Unavailable where one is missing."""
    infos = cluster.topics(topics)
    if missing := [t for t in topics if t not in infos]:
        raise Unavailable(
            f"the {cluster.name} cluster lacks the topics {missing}; run `hourmark types apply`"
        )
    return infos


def partitions(infos: Collection[TopicInfo]) -> list[Partition]:
    """All of these topics."""
    return [Partition(info.name, number) for info in infos for number in info.partitions]
