"""Plans batches from the ledger and the cluster: the thin edge around `planner`. Runs in Spark's process of the source.

The ledger says where to begin and which types there are, so a type applied, a partition added or a type set aside counts from the
next batch on, without a restart.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from typing import Final

from etl.errors import TopicReplaced
from etl.ledger import staging as ledger
from etl.ledger.database import Database, Lease
from etl.ledger.overview import set_aside
from etl.ledger.remains import STAGING_FOLDER
from etl.ledger.rows import Position
from etl.staging.planner import PlannedBatch, deal, plan_spans
from etl.topics import CentralTopics, new_positions
from hourmark.config import Config
from hourmark.kafka import Cluster, Partition

REFRESH_S: Final = 30.0  # between comparisons of topic ids, log starts and numbers of partitions


class Planner:
    """Plans for the holder of a lease, batch after batch; each begins where the ledger stands."""

    def __init__(self, config: Config, lease: Lease, shard: str) -> None:
        self._config, self._lease, self._shard = config, lease, shard
        self._database = Database(config.etl.ledger)
        self._central = Cluster(config.kafka.central_cluster, "central")
        self._cluster_id = self._central.cluster_id()
        self._types: frozenset[str] = frozenset()
        self._refreshed_s = -REFRESH_S

    def next_batch(self) -> PlannedBatch | None:
        """What to read now; None if there is nothing new.

        TopicReplaced or EtlStop where offsets mean other records, or none, now; StaleDriver; Unavailable.
        """
        shards = ledger.type_shards(self._database)
        self._hand_over(shards)
        types = frozenset(t for t, shard in shards.items() if shard == self._shard) - set(set_aside(self._database))
        topics = CentralTopics.of(self._config.kafka, types).of_shard(self._shard)
        if types != self._types or time.monotonic() - self._refreshed_s >= REFRESH_S:
            self._refresh(topics)
            self._types, self._refreshed_s = types, time.monotonic()
        positions = [p for p in self._known() if p.topic in set(topics) and p.shard == self._shard]
        partitions = [Partition(p.topic, p.partition) for p in positions]
        ends = self._central.ends(partitions)
        for p in positions:
            if (end := ends[Partition(p.topic, p.partition)]) < p.next_offset:
                raise TopicReplaced(
                    f"topic {p.topic} partition {p.partition}: the log ends at offset {end}, but offsets up to {p.next_offset} "
                    "were staged: it lost records, or was made anew. An operator must decide"
                )
        etl = self._config.etl
        spans = plan_spans(positions, ends, records_max=etl.batch_records_max, type_bytes_max=etl.type_batch_bytes_max)
        if not spans:
            return None
        return PlannedBatch(f"{STAGING_FOLDER}/{self._lease.epoch:012d}-{self._shard}-{uuid.uuid4().hex}", deal(spans, etl.tasks))

    def close(self) -> None:
        """Let go of the ledger."""
        self._database.close()

    def _known(self) -> list[Position]:
        return ledger.positions(self._database, self._cluster_id)

    def _refresh(self, topics: Collection[str]) -> None:
        if wanted := new_positions(self._central, topics, self._known(), self._shard):
            ledger.begin_positions(self._database, self._lease, wanted)
            starts = self._central.starts([Partition(p.topic, p.partition) for p in wanted])
            alias = CentralTopics.of(self._config.kafka, ()).alias
            ledger.pass_over(self._database, self._lease, alias, {p: starts[Partition(p.topic, p.partition)] for p in wanted})

    def _hand_over(self, shards: Mapping[str, str]) -> None:
        """Leave types that were moved to other shards to them: no batch of this shard is under way now."""
        naming = CentralTopics.of(self._config.kafka, ())
        moved = {}
        for p in self._known():
            to = shards.get(naming.type_of(p.topic) or "", self._shard)
            if p.shard == self._shard and to != self._shard:
                moved[p.topic] = to
        if moved:
            ledger.hand_over(self._database, self._lease, moved)
