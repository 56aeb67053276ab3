"""Asks every site and the central cluster for the cut: the real `Sites`; and the ledger: the real
`Progress`.

What is found at a site of several is said with its alias. Gaps are gaps of a topic, of whichever
site: they hold its type.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from hourmark.clock import Clock
from hourmark.config.groups import Kafka
from hourmark.kafka.clients import Cluster, Partition
from hourmark.kafka.mirror import MirrorPositions
from hourmark.kafka.topic_names import AUDIT, CONTROL
from hourmark_etl.closing.cut.cut import EdgeEnds
from hourmark_etl.closing.cut.edge import EdgeSite, existing, partitions
from hourmark_etl.ledger import batches
from hourmark_etl.ledger.batches import check_topic_ids, hold_short_audit_logs
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap, open_gaps
from hourmark_etl.ledger.reporters import reporters
from hourmark_etl.model import FIRST_SITE, Position, Reporter
from hourmark_etl.topics import SiteCluster

_LOG = logging.getLogger(__name__)


class Clusters:
    """The edges of all sites, and the central cluster."""

    def __init__(
        self, edges: Sequence[EdgeSite], central: SiteCluster, database: Database, lease: Lease
    ) -> None:
        self._edges, self._central, self._database, self._lease = edges, central, database, lease
        self._lost: list[OffsetGap] = []  # of the central topics, by their names at the edge

    @classmethod
    def of(cls, kafka: Kafka, database: Database, lease: Lease, clock: Clock) -> Clusters:
        """The clusters that the settings name."""
        central = Cluster(kafka.central_cluster, "central")
        if not kafka.mirrored:
            only = EdgeSite(
                edge=central, mirror=None, alias=None, database=database, lease=lease, clock=clock
            )
            return cls([only], central, database, lease)
        edges = [
            EdgeSite(
                edge=Cluster(of.edge, "edge" if n == 0 else f"{of.edge_alias} edge"),
                mirror=MirrorPositions(of.central_cluster, of.edge_alias),
                alias=of.edge_alias,
                database=database,
                lease=lease,
                clock=clock,
                site=FIRST_SITE if n == 0 else of.edge_alias,
            )
            for n, of in enumerate(kafka.sites)
        ]
        return cls(edges, central, database, lease)

    def close(self) -> None:
        """Leave the clusters."""
        for edge in self._edges:
            edge.close()

    def check(self, types: Collection[str]) -> None:
        """Look for gaps in the topics of these types, and of promises and reports; remember where
        the mirrors stand.
        """
        self._find_lost()
        for edge in self._edges:
            edge.check(types)
        self.central_ends([AUDIT])  # finds those that are shorter

    def _find_lost(self) -> None:
        """What the ledger knows to be lost."""
        known, self._lost = self._lost, open_gaps(self._database)
        for gap in self._lost:
            if gap not in known:
                _LOG.error(
                    "%s; where a copy of the ledger was restored, and Kafka's retention took "
                    "them, `hourmark ledger rebuild` "
                    "looks for them in staged files; else hours of what was in them close by "
                    "an override alone "
                    "(`hourmark bucket force`)",
                    gap.what,
                )

    def acceptable(self, topics: Collection[str]) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        """Offset gaps of these topics, and checks of where the edges' logs begin and the mirrors
        stand now.

        None of promises while their log ends before what was staged of it: others will come in
        those places, and nobody reads them.
        """
        found = [(edge, *edge.acceptable(topics)) for edge in self._edges]
        gaps = [
            dataclasses.replace(gap, what=self._said(edge, gap.what))
            for edge, gaps, _ in found
            for gap in gaps
        ]
        is_short = AUDIT in topics and bool(self._ask_centre([AUDIT])[1])
        lost = [h for h in self._lost if h.topic in topics and not (is_short and h.topic == AUDIT)]
        return [*gaps, *lost], [check for *_, checks in found for check in checks]

    def gaps(self) -> dict[str, str]:
        """By edge topic: why records of it may never arrive."""
        at_edges = (
            (t, self._said(edge, why)) for edge in self._edges for t, why in edge.gaps.items()
        )
        return _joined([*at_edges, *((h.topic, h.what) for h in self._lost)])

    def edge_ends(self, topics: Sequence[str]) -> EdgeEnds:
        """End offsets at each edge.

        A host may report at one site and be promised at another: so all sites are asked for one
        control topic before any for the next.
        """
        ends: dict[str, dict[Partition, int]] = {edge.site: {} for edge in self._edges}
        for asked in (
            *([t] for t in topics if t in CONTROL),
            [t for t in topics if t not in CONTROL],
        ):
            for edge in self._edges if asked else ():
                ends[edge.site] |= edge.ends(asked)
        return ends

    def not_mirrored(self, cut: EdgeEnds) -> dict[str, str]:
        """By edge topic: what a mirror has yet to copy below the cut."""
        behind = (
            (t, self._said(edge, what))
            for edge in self._edges
            for t, what in edge.not_mirrored(cut[edge.site]).items()
        )
        return _joined(behind)

    def central_ends(self, topics: Collection[str]) -> Mapping[Partition, int]:
        """High watermarks, on the central cluster, of the topics mirrored from these, of every
        site.

        Not the last stable offsets: the mirror's position may be committed before the marker of the
        very transaction reaches another partition, and then those would leave its records out.
        TopicReplaced if one is not the topic that is staged.
        """
        ends, shorter = self._ask_centre(topics)
        if shorter:
            hold_short_audit_logs(self._database, self._lease, shorter)
            self._find_lost()
        return ends

    def _ask_centre(
        self, topics: Collection[str]
    ) -> tuple[Mapping[Partition, int], list[Position]]:
        """Ends; and what was staged of promises, where their log ends before it."""
        infos = existing(
            self._central, [name for edge in self._edges for name in edge.central(topics)]
        )
        check_topic_ids(self._database, infos.values())
        audits = {name for edge in self._edges for name in edge.central([AUDIT])} & infos.keys()
        asked = partitions([infos[name] for name in audits])
        staged = [
            at for p in asked for at in batches.positions_of_topic(self._database, p)
        ]  # before its end: staging goes on
        ends = self._central.ends(partitions(infos.values()), committed=False)
        return ends, [
            p
            for p in staged
            if p.topic_id == infos[p.topic].topic_id and ends[p.of] < p.next_offset
        ]

    def _said(self, edge: EdgeSite, what: str) -> str:
        return what if len(self._edges) == 1 else f"{edge.alias}: {what}"


def _joined(said: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for topic, what in said:
        found[topic] = f"{found[topic]}; {what}" if topic in found else what
    return found


@dataclasses.dataclass(frozen=True)
class LedgerProgress:
    """What a cut asks of the ledger: the real `Progress`."""

    database: Database
    cluster_id: str

    def reporters(self) -> list[Reporter]:
        """Latest staged reports."""
        return reporters(self.database)

    def not_staged(self, ends: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """The next offset to stage, of what is below these central ends and not yet staged."""
        positions = self._positions()
        return {p: positions.get(p, 0) for p, end in ends.items() if positions.get(p, 0) < end}

    def staged_next(self, partition: Partition) -> int:
        """The next offset to stage."""
        return self._positions().get(partition, 0)

    def _positions(self) -> dict[Partition, int]:
        return {p.of: p.next_offset for p in batches.positions(self.database, self.cluster_id)}
