"""A closer on real servers: what `Ports` stands for in a driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from etl.closing.closer import Closer, Metrics, Ports
from etl.closing.containers import WrittenHour
from etl.closing.edge import TwoSites
from etl.closing.engine import Engine
from etl.closing.proof import Proof
from etl.closing.writing import SealedHour
from etl.ledger import staging as staged
from etl.ledger.database import Database, Lease
from etl.ledger.rows import Frontier, Reporter
from etl.storage import open_storage
from hourmark.avro import Schema
from hourmark.clock import Clock
from hourmark.config import Config
from hourmark.errors import Unavailable
from hourmark.kafka import Partition

_CAUSE_MAX: Final = 1500
_T = TypeVar("_T")


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


@dataclasses.dataclass(frozen=True)
class TriedAgain:
    """An engine whose failed jobs are tried again at the next look."""

    engine: Engine

    def prove(self, frozen: Collection[Frontier], audit_next: int) -> dict[str, Proof]:
        """See `Engine`."""
        return _unavailable(lambda: self.engine.prove(frozen, audit_next))

    def write(self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str) -> list[WrittenHour]:
        """See `Engine`."""
        return _unavailable(lambda: self.engine.write(sealed, schemas, folder))


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
            TriedAgain(engine),
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


def _unavailable(ask: Callable[[], _T]) -> _T:
    try:
        return ask()
    except (PySparkException, Py4JError) as error:
        raise Unavailable(f"a Spark job of closing failed, and is tried again: {str(error)[-_CAUSE_MAX:]}") from error
