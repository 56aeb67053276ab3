"""A closer on real servers: what `Ports` stands for in a driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from etl.closing.closer import Closer, Metrics, Ports
from etl.closing.edge import TwoSites
from etl.closing.engine import Engine
from etl.ledger import staging as staged
from etl.ledger.database import Database, Lease
from etl.ledger.rows import Reporter
from etl.storage import open_storage
from hourmark.avro import Schema
from hourmark.clock import Clock
from hourmark.config import Config
from hourmark.kafka import Partition


@dataclasses.dataclass(frozen=True)
class LedgerProgress:
    """What a cut asks of the ledger: the real `Progress`."""

    database: Database
    cluster_id: str

    def reporters(self) -> list[Reporter]:
        """Latest staged reports."""
        return staged.reporters(self.database)

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
        return {Partition(p.topic, p.partition): p.next_offset for p in staged.positions(self.database, self.cluster_id)}


def closer_on_servers(
    engine: Engine,
    config: Config,
    database: Database,
    cluster_id: str,
    fetch_schema: Callable[[int], Schema],
    clock: Clock,
    metrics: Metrics,
    restage: Callable[[Lease, str], str],
) -> Closer:
    """Takes the lease of closing."""
    return Closer(
        Ports(
            engine,
            open_storage(config.storage),
            database,
            lambda lease: TwoSites.of(config.kafka, database, lease, clock),
            LedgerProgress(database, cluster_id),
            fetch_schema,
            restage,
            metrics,
            clock,
        ),
        config,
    )
