"""Implements `SiteClusters` with Kafka clusters and `StagingProgress` with the ledger.

If there are several sites, messages contain the site's alias. A gap blocks the event type of its
topic, regardless of the site at which it was found.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from hourmark.clock import Clock
from hourmark.config.groups import KafkaSettings
from hourmark.kafka.clients import Cluster, Partition
from hourmark.kafka.mirror import MirrorPositions
from hourmark.kafka.topic_names import AUDIT, CONTROL
from hourmark_etl.closing.cut.cut import EdgeEnds
from hourmark_etl.closing.cut.edge import EdgeSite, list_partitions, require_topics
from hourmark_etl.ledger import batches
from hourmark_etl.ledger.batches import check_topic_ids, record_truncated_audit_logs
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.hosts.reporters import reporters
from hourmark_etl.ledger.partitions.offset_gaps import EdgeCheck, OffsetGap, open_gaps
from hourmark_etl.model import FIRST_SITE, ReportedSource, StagingPosition
from hourmark_etl.topics import SiteCluster

_LOG = logging.getLogger(__name__)


class KafkaSiteClusters:
    """Queries the Kafka clusters to determine whether an hourly bucket may be closed.

    Each site has an edge cluster, and a mirror copies its topics to the central cluster. A bucket
    is closed after all its records have been mirrored and staged (copied from Kafka to storage).

    Args:
        edges: The edge cluster of each site.
        central: The central cluster.
        database: Database of the ledger.
        lease: Lease of the closer, the process that closes buckets.
    """

    def __init__(
        self, edges: Sequence[EdgeSite], central: SiteCluster, database: Database, lease: Lease
    ) -> None:
        self._edges, self._central, self._database, self._lease = edges, central, database, lease
        self._lost_gaps: list[OffsetGap] = []  # lost ends of central topics, by edge name

    @classmethod
    def connect(
        cls, kafka: KafkaSettings, database: Database, lease: Lease, clock: Clock
    ) -> KafkaSiteClusters:
        """Create clients for all clusters in the Kafka settings.

        If no mirror is configured, a single cluster is both the edge and the central cluster.

        Args:
            kafka: Kafka settings with all sites.
            database: Database of the ledger.
            lease: Lease of the closer, the process that closes buckets.
            clock: Clock for the timestamps of recorded checks.

        Returns:
            The instance. The caller must close it.
        """
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
        """Close the connections for reading the mirrors' positions."""
        for edge in self._edges:
            edge.close()

    def check(self, types: Collection[str]) -> None:
        """Check all sites for records that may have been lost before they were staged.

        The check covers the topics of the given event types and the control topics (audit records
        and host reports). `gaps` returns the result. The mirrors' positions are stored in the
        ledger (the ETL's state database) for the next check.

        Args:
            types: Event types to check.

        Raises:
            Unavailable: A cluster does not answer or lacks a required topic.
            StaleDriver: Another closer has taken over the lease.
        """
        self._refresh_lost_gaps()
        for edge in self._edges:
            edge.check(types)
        self.central_ends([AUDIT])  # detects logs that have become shorter

    def _refresh_lost_gaps(self) -> None:
        known, self._lost_gaps = self._lost_gaps, open_gaps(self._database)
        for gap in self._lost_gaps:
            if gap not in known:
                _LOG.error(
                    "%s; if a copy of the ledger was restored and Kafka's retention has deleted "
                    "these records, `hourmark ledger rebuild` searches staged files for them; "
                    "otherwise, hours that may lack these records close only by an override "
                    "(`hourmark bucket force`)",
                    gap.what,
                )

    def find_acceptable_gaps(
        self, topics: Collection[str]
    ) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        """Return the offset gaps that an operator's override may accept.

        A gap is a range of offsets whose records may be lost. Hours that depend on it are closed
        only after it was accepted. While an audit topic on the central cluster ends before the next
        offset to stage, its gaps are omitted, because new records would get offsets that staging
        skips.

        Args:
            topics: Topic names at the edge.

        Returns:
            A pair of the gaps and the edge checks, which contain positions from which later checks
            start. Store the edge checks when the gaps are accepted, so that the gaps are no longer
            reported. Both lists are empty if there is no gap.

        Raises:
            Unavailable: A cluster does not answer.
        """
        found = [(edge, *edge.find_acceptable_gaps(topics)) for edge in self._edges]
        gaps = [
            dataclasses.replace(gap, what=self._with_site(edge, gap.what))
            for edge, gaps, _ in found
            for gap in gaps
        ]
        is_short = AUDIT in topics and bool(self._query_central([AUDIT])[1])
        lost = [
            h for h in self._lost_gaps if h.topic in topics and not (is_short and h.topic == AUDIT)
        ]
        return [*gaps, *lost], [check for *_, checks in found for check in checks]

    def gaps(self) -> dict[str, str]:
        """Return the topics that may have lost records, according to the last `check`.

        Hours that depend on such a topic must not be closed.

        Returns:
            Human-readable reasons, keyed by topic name at the edge; empty if no loss is known.
        """
        at_edges = (
            (t, self._with_site(edge, why)) for edge in self._edges for t, why in edge.gaps.items()
        )
        return _join_messages([*at_edges, *((h.topic, h.what) for h in self._lost_gaps)])

    def edge_ends(self, topics: Sequence[str]) -> EdgeEnds:
        """Return the end offsets of topics on the edge cluster of each site.

        Control topics (audit records, host reports) are queried first, one at a time at all sites.
        The order matters because a host's reports and audit records may arrive at different sites.

        Args:
            topics: Topic names at the edge. Control topics are queried in this order.

        Returns:
            End offsets by site id and edge partition.

        Raises:
            Unavailable: A cluster does not answer or lacks a topic.
        """
        ends: dict[str, dict[Partition, int]] = {edge.site: {} for edge in self._edges}
        for asked in (
            *([t] for t in topics if t in CONTROL),
            [t for t in topics if t not in CONTROL],
        ):
            for edge in self._edges if asked else ():
                ends[edge.site] |= edge.ends(asked)
        return ends

    def find_unmirrored_topics(self, cut: EdgeEnds) -> dict[str, str]:
        """Return the topics that the mirrors have not yet copied up to the given end offsets.

        Topics that may have lost records are included.

        Args:
            cut: End offsets from `edge_ends`.

        Returns:
            Human-readable reasons, keyed by topic name at the edge; empty if everything was copied.
        """
        behind = (
            (t, self._with_site(edge, what))
            for edge in self._edges
            for t, what in edge.find_unmirrored_topics(cut[edge.site]).items()
        )
        return _join_messages(behind)

    def central_ends(self, topics: Collection[str]) -> Mapping[Partition, int]:
        """Return the high watermarks of the topics of all sites on the central cluster.

        The method also detects audit topics that have lost records. If such a topic ends before the
        next offset to stage (copy to storage), the missing offsets are recorded in the ledger as a
        gap, and hours stay open until an operator accepts it.

        Args:
            topics: Topic names at the edge.

        Returns:
            High watermark of each partition on the central cluster.

        Raises:
            TopicReplaced: A topic was recreated after its records were staged.
            Unavailable: The cluster does not answer or lacks a topic.
        """
        ends, shorter = self._query_central(topics)
        if shorter:
            record_truncated_audit_logs(self._database, self._lease, shorter)
            self._refresh_lost_gaps()
        return ends

    def _query_central(
        self, topics: Collection[str]
    ) -> tuple[Mapping[Partition, int], list[StagingPosition]]:
        # Return the ends, and the staging positions of audit topics whose logs end below them.
        infos = require_topics(
            self._central, [name for edge in self._edges for name in edge.central_names(topics)]
        )
        check_topic_ids(self._database, infos.values())
        audits = {
            name for edge in self._edges for name in edge.central_names([AUDIT])
        } & infos.keys()
        asked = list_partitions([infos[name] for name in audits])
        staged = [
            at for p in asked for at in batches.read_partition_positions(self._database, p)
        ]  # read before the ends, because staging continues
        # The last stable offset would be too low: a mirror may commit its position before the
        # transaction marker has reached every partition.
        ends = self._central.ends(list_partitions(infos.values()), committed=False)
        return ends, [
            p
            for p in staged
            if p.topic_id == infos[p.topic].topic_id and ends[p.topic_partition] < p.next_offset
        ]

    def _with_site(self, edge: EdgeSite, what: str) -> str:
        return what if len(self._edges) == 1 else f"{edge.alias}: {what}"


def _join_messages(messages: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for topic, what in messages:
        found[topic] = f"{found[topic]}; {what}" if topic in found else what
    return found


@dataclasses.dataclass(frozen=True)
class LedgerProgress:
    """Reads the progress of staging (copying Kafka records to files) from the ledger.

    Attributes:
        database: Database of the ledger.
        cluster_id: Kafka cluster id of the central cluster.
    """

    database: Database
    cluster_id: str

    def reporters(self) -> list[ReportedSource]:
        """Return the latest report of each log source on each host and delivery service.

        A report states the time up to which all data of the source has been delivered.

        Returns:
            The reports that have been staged, in no particular order.
        """
        return reporters(self.database)

    def find_unstaged_partitions(self, ends: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """Return the partitions that have not been staged up to the given end offsets.

        Args:
            ends: End offset of each partition on the central cluster.

        Returns:
            The next offset to stage for each such partition; empty if everything is staged.
        """
        positions = self._positions()
        return {p: positions.get(p, 0) for p, end in ends.items() if positions.get(p, 0) < end}

    def next_offset_to_stage(self, partition: Partition) -> int:
        """Return the next offset of a partition that staging will read.

        Args:
            partition: Topic-partition on the central cluster.

        Returns:
            The next offset to stage; 0 if nothing has been staged.
        """
        return self._positions().get(partition, 0)

    def _positions(self) -> dict[Partition, int]:
        return {
            p.topic_partition: p.next_offset
            for p in batches.positions(self.database, self.cluster_id)
        }
