"""Implements `SiteClusters` with Kafka clusters and `StagingProgress` with the ledger.

If there are several sites, messages name the site's alias. A gap concerns a topic, at whichever
site it was found, and blocks the topic's event type.
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
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap, open_gaps
from hourmark_etl.model import FIRST_SITE, ReportedSource, StagingPosition
from hourmark_etl.topics import SiteCluster

_LOG = logging.getLogger(__name__)


class KafkaSiteClusters:
    """Queries of the Kafka clusters whose state decides whether an hourly bucket is complete.

    They are the edge cluster of each site, the mirrors that copy them, and the central cluster. The
    closer (the process that closes buckets) queries them to determine which records must be staged,
    that is, copied from Kafka to storage, before a bucket is closed.

    Args:
        edges: The edge cluster of each site.
        central: The central cluster.
        database: Database of the ledger.
        lease: The closer's lease.
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
        """Create clients for all clusters that the Kafka settings name.

        Without mirrors, one cluster serves as both the edge and the central cluster.

        Args:
            kafka: Kafka settings with all sites.
            database: Database of the ledger.
            lease: The closer's lease.
            clock: Clock for the time at which checks are recorded.

        Returns:
            An instance that the caller must close.
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
        """Close the connections to the clusters that store the positions of the mirrors."""
        for edge in self._edges:
            edge.close()

    def check(self, types: Collection[str]) -> None:
        """Check all sites for records that may have been lost before they were mirrored and staged.

        The topics of the given types and the control topics (audit records and host reports) are
        checked. Call `gaps` for the result. The mirrors' positions are stored in the ledger (the
        ETL's state database) for the next check.

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
                    "%s; where a copy of the ledger was restored, and Kafka's retention took "
                    "them, `hourmark ledger rebuild` "
                    "looks for them in staged files; else hours of what was in them close by "
                    "an override alone "
                    "(`hourmark bucket force`)",
                    gap.what,
                )

    def find_acceptable_gaps(
        self, topics: Collection[str]
    ) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        """Return the gaps (records that may be lost) that an operator's override may accept.

        A gap of the audit topic is left out while the topic's log on the central cluster ends
        before the staging position (next offset to stage), because new records that get these
        offsets would not be staged.

        Args:
            topics: Topic names at the edge.

        Returns:
            A pair: the gaps, and the edge checks to store when they are accepted. The checks
            contain the current log starts and mirror positions, so that later checks no longer
            report the gaps. Both lists are empty if there is no gap.

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
        """Return the topics that may have lost records, as found by the last `check`.

        Hours that need such a topic must stay open.

        Returns:
            Readable reasons by topic name at the edge; empty if no records were lost.
        """
        at_edges = (
            (t, self._with_site(edge, why)) for edge in self._edges for t, why in edge.gaps.items()
        )
        return _join_messages([*at_edges, *((h.topic, h.what) for h in self._lost_gaps)])

    def edge_ends(self, topics: Sequence[str]) -> EdgeEnds:
        """Return the end offsets of topics at the edge cluster of each site.

        Each control topic (audit records, host reports) is queried at all sites before the next
        topic, because a host may report at one site while its events are recorded at another.

        Args:
            topics: Topic names at the edge, in the order in which control topics are queried.

        Returns:
            End offsets by site id, then by edge partition.

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
        """Return the topics that a mirror has not yet copied up to the given end offsets.

        Topics with lost records are included.

        Args:
            cut: End offsets that `edge_ends` returned.

        Returns:
            Readable reasons by topic name at the edge; empty if everything was copied.
        """
        behind = (
            (t, self._with_site(edge, what))
            for edge in self._edges
            for t, what in edge.find_unmirrored_topics(cut[edge.site]).items()
        )
        return _join_messages(behind)

    def central_ends(self, topics: Collection[str]) -> Mapping[Partition, int]:
        """Return the high watermarks of topics on the central cluster, for all sites.

        High watermarks are used instead of last stable offsets, because a mirror's position may be
        committed before the transaction marker reaches every partition. If the log of an audit
        topic ends before its staging position (next offset to stage), the missing offsets are
        stored in the ledger as a gap, which keeps hours open.

        Args:
            topics: Topic names at the edge.

        Returns:
            High watermark by central partition.

        Raises:
            TopicReplaced: A topic was recreated since its records were staged.
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
    """The progress of staging (copying Kafka records to files), as recorded in the ledger.

    Attributes:
        database: Database of the ledger.
        cluster_id: Kafka cluster id of the central cluster.
    """

    database: Database
    cluster_id: str

    def reporters(self) -> list[ReportedSource]:
        """Return the latest report of each log source on each host and delivery service.

        A report states up to which time all data of the source was delivered.

        Returns:
            The reports that are staged so far, in no particular order.
        """
        return reporters(self.database)

    def find_unstaged_partitions(self, ends: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """Return the partitions that are not yet staged up to the given end offsets.

        Args:
            ends: End offset of each partition of the central cluster.

        Returns:
            The next offset to stage of each such partition; empty if everything is staged.
        """
        positions = self._positions()
        return {p: positions.get(p, 0) for p, end in ends.items() if positions.get(p, 0) < end}

    def next_offset_to_stage(self, partition: Partition) -> int:
        """Return the offset at which staging of a central topic-partition continues.

        Args:
            partition: Topic-partition of the central cluster.

        Returns:
            The next offset to stage; 0 if nothing is staged yet.
        """
        return self._positions().get(partition, 0)

    def _positions(self) -> dict[Partition, int]:
        return {
            p.topic_partition: p.next_offset
            for p in batches.positions(self.database, self.cluster_id)
        }
