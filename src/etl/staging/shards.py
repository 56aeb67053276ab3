"""The consumers of a driver: one for each shard, those named to it or all that the ledger knows."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import SparkSession

from etl.ledger import staging as ledger
from etl.ledger.database import Database
from etl.progress import Progress
from etl.staging.consumer import Consumer
from hourmark.clock import Clock
from hourmark.config import Config


class Consumers:
    """Takes in a shard that is new while it runs, unless shards were named: then others are left to other drivers."""

    def __init__(
        self, spark: SparkSession, config: Config, database: Database, cluster_id: str, clock: Clock, progress: Progress,
        named: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._made_of = (spark, config, database, cluster_id, clock, progress)
        self._database, self._named = database, frozenset(named)
        self._consumers: dict[str, Consumer] = {}

    def check(self) -> None:
        """Start what is not started; EtlStop as `Consumer.check`."""
        for shard in sorted((self._named or ledger.shards(self._database)) - set(self._consumers)):
            self._consumers[shard] = Consumer(*self._made_of, shard)
            self._consumers[shard].start()
        for consumer in self._consumers.values():
            consumer.check()

    def stop(self) -> None:
        """End all queries, as `Consumer.stop`."""
        for consumer in self._consumers.values():
            consumer.stop()
