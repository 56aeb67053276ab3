"""The consumer: one Structured Streaming query over all topics of a shard, started from the ledger, committed to the ledger.

Spark's checkpoint is scratch: it is deleted at each start, so restart, upgrade and a lost checkpoint are one path. Offsets
move only with the ledger transaction that names what was staged up to them.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import uuid
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from etl.errors import EtlStop
from etl.ledger import staging as ledger
from etl.ledger.database import Database, Lease
from etl.ledger.rows import Position, Span, StagedBatch, StagedFile
from etl.progress import Progress
from etl.staging.pieces import StagedPiece, StagePlan
from etl.staging.planned import planned_ends
from etl.staging.task import INPUT_COLUMNS, OUTPUT_SCHEMA, stage_task
from etl.topics import CentralTopics, new_positions
from hourmark.clock import Clock
from hourmark.config import Config
from hourmark.host_reports import HostReport
from hourmark.kafka import Cluster, Partition

STAGING_FOLDER: Final = "_staging"
_LINES_OF_CAUSE: Final = 15
_LOG = logging.getLogger(__name__)


class Consumer:
    """Stages what arrives, batch by batch, until it is stopped. One per shard; the lease fences an older one."""

    def __init__(self, spark: SparkSession, config: Config, database: Database, clock: Clock, progress: Progress) -> None:
        self._spark, self._config, self._database, self._clock = spark, config, database, clock
        self._progress = progress
        self._lease: Lease = database.acquire("consumer:default")
        self._checkpoint = config.etl.scratch_dir / "checkpoint"
        self._positions: dict[Partition, Position] = {}
        self._topics = CentralTopics.of(config.kafka, ())
        self._query: StreamingQuery | None = None

    def start(self, types: frozenset[str], central: Cluster) -> None:
        """Begin, or begin anew with other types, from the ledger's offsets."""
        self.stop()
        self._topics = CentralTopics.of(self._config.kafka, types)
        known = ledger.positions(self._database, central.cluster_id())
        wanted = new_positions(central, self._topics, known)
        ledger.begin_positions(self._database, self._lease, wanted)
        self._positions = {Partition(p.topic, p.partition): p for p in wanted}
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._query = (
            self._kafka_frame()
            .writeStream.foreachBatch(self._stage)
            .option("checkpointLocation", self._checkpoint.as_uri())
            .trigger(processingTime=f"{self._config.etl.trigger_seconds} seconds")
            .queryName("hourmark-consumer")
            .start()
        )
        _LOG.info("staging %d topics of %d types from the ledger's offsets", len(self._topics.all), len(types))

    def check(self) -> None:
        """EtlStop, saying why, if the query has ended."""
        if self._query is not None and not self._query.isActive:
            error = self._query.exception()
            why = "it ended by itself" if error is None else "\n".join(str(error).splitlines()[-_LINES_OF_CAUSE:])
            raise EtlStop(
                f"staging has stopped; start the driver again, it goes on from the ledger. The cause:\n{why}"
            ) from error

    def stop(self) -> None:
        """End the query; a batch under way is either committed or will be staged again."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def _kafka_frame(self) -> DataFrame:
        etl, kafka = self._config.etl, self._config.kafka
        starting: dict[str, dict[str, int]] = {}
        for p in self._positions.values():
            starting.setdefault(p.topic, {})[str(p.partition)] = p.next_offset
        options = {
            "kafka.bootstrap.servers": kafka.central_cluster.bootstrap,
            "kafka.isolation.level": "read_committed",
            "kafka.max.partition.fetch.bytes": str(kafka.max_message_bytes),
            # A reused consumer waits out a fetch that is pending; with many quiet topics the default 500 ms add up.
            "kafka.fetch.max.wait.ms": "10",
            "subscribe": ",".join(self._topics.all),
            "startingOffsets": json.dumps(starting),
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": str(etl.batch_records_max),
        }
        return self._spark.readStream.format("kafka").options(**options).load()

    def _stage(self, frame: DataFrame, batch_id: int) -> None:
        began = self._clock.monotonic_s()
        ends = planned_ends(self._checkpoint, batch_id)
        batch = f"{STAGING_FOLDER}/{uuid.uuid4().hex}"
        plan = StagePlan(
            self._config.storage,
            batch,
            self._config.parsing.bucket_seconds,
            dict(self._topics.types),
            self._topics.audit,
            self._topics.hosts,
        )

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return stage_task(batches, plan)

        rows = frame.select(*INPUT_COLUMNS).coalesce(self._config.etl.tasks).mapInArrow(run, OUTPUT_SCHEMA).collect()
        staged = [StagedPiece.from_json(row.staged) for row in rows]
        committed = self._batch(batch, staged, ends)
        ledger.commit_batch(self._database, self._lease, committed)
        self._positions |= {p: dataclasses.replace(self._positions[p], next_offset=end) for p, end in ends.items()}
        self._progress.staged(committed, self._clock.monotonic_s() - began)
        events = sum(g.rows for s in staged for g in s.groups)
        if events:
            _LOG.info("staged %d events in %.1f s (batch %d)", events, self._clock.monotonic_s() - began, batch_id)

    def _batch(self, folder: str, staged: list[StagedPiece], ends: dict[Partition, int]) -> StagedBatch:
        if unknown := [str(p) for p in ends if p not in self._positions]:
            raise EtlStop(
                f"partitions were added while running: {unknown}; start the driver again, it takes them in from offset 0"
            )
        starts = tuple(self._positions[p] for p in ends)
        spans = tuple(
            Span(s.topic, s.topic_id, s.partition, s.next_offset, ends[Partition(s.topic, s.partition)]) for s in starts
        )
        reports = sorted(r for s in staged for r in s.reports)
        return StagedBatch(
            folder=folder,
            starts=starts,
            ends=tuple(dataclasses.replace(s, next_offset=ends[Partition(s.topic, s.partition)]) for s in starts),
            files=tuple(StagedFile(f.path, f.kind, f.rows, spans) for s in staged for f in s.files),
            groups=tuple(g for s in staged for g in s.groups),
            audit_groups=tuple(g for s in staged for g in s.audit_groups),
            reports=tuple(ledger.reporters_of(HostReport.decode(r.datum)) for r in reports),
        )
