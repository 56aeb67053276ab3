"""The consumer: one Structured Streaming query per shard, started from and committed to the ledger.

Spark's checkpoint is scratch and is deleted at each start, so a restart, an upgrade and a lost
checkpoint take the same path. Offsets advance only in the ledger transaction that names the files
staged up to them. If Kafka, the storage or the ledger is unavailable, the query ends and is
restarted after growing pauses; there are no other retries.

The driver's reaction to a failed batch depends on the class of the error. Tasks and the planning of
batches return theirs as values (`task_failures`); only errors of Spark itself are text
(`spark_errors`). `ShardConsumers` manages the consumers of a driver: one per shard, either for the
configured shards or for all shards in the ledger.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hourmark.clock import Clock
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError, Unavailable
from hourmark.kafka.clients import Cluster, Partition
from hourmark.records.host_reports import HostReport
from hourmark_etl.errors import DataLoss
from hourmark_etl.execution.session import task_attempts_max
from hourmark_etl.execution.task_failures import to_hourmark_error
from hourmark_etl.ledger import batches as ledger
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.hosts.reporters import decode_report
from hourmark_etl.ledger.partitions.read_errors import ReadError
from hourmark_etl.model import OffsetSpan, StagedBatch, StagingPosition
from hourmark_etl.staging.planner import StreamReader, unpack_results
from hourmark_etl.staging.source import kafka_source, source_name
from hourmark_etl.staging.spark_errors import classify_spark_error, format_query_error
from hourmark_etl.staging.stage import TaskResult
from hourmark_etl.topics import CentralTopicNames

STOP_S: Final = 10.0  # time that a running batch gets to end
PAUSE_S_MAX: Final = 30.0
_LOG = logging.getLogger(__name__)
OnCommit = Callable[
    [StagedBatch, float], None
]  # called with each batch and its duration in seconds


def checkpoint_dir(scratch_dir: Path, shard: str) -> Path:
    """Return the folder for the Spark checkpoint of a shard's streaming query.

    Args:
        scratch_dir: Folder for temporary files. A relative path is resolved against the working
            directory.
        shard: Name of the shard, which is a set of event types that one streaming query copies from
            Kafka to storage.

    Returns:
        An absolute path; the folder may not exist yet.
    """
    return (scratch_dir / f"checkpoint-{shard}").absolute()


class Consumer:
    """The Spark streaming query of one shard, which copies records from Kafka to staged files.

    A shard is a set of event types that one query stages. Creating an instance acquires the shard's
    lease in the ledger (the ETL's state database). An older consumer of the same shard can then no
    longer commit.

    Args:
        spark: Spark session of the driver.
        config: The complete configuration.
        database: The ledger, which stores the offsets.
        cluster_id: Id of the central Kafka cluster.
        clock: Clock for the time of commits.
        on_commit: Function that is called after each commit with the batch and its duration in
            seconds.
        shard: Name of the shard.
        make_reader: Function that creates the Spark stream reader. Tests pass another function.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        database: Database,
        cluster_id: str,
        clock: Clock,
        on_commit: OnCommit,
        shard: str,
        *,
        make_reader: Callable[[Config, Lease, str, str, int], StreamReader] = StreamReader,
    ) -> None:
        self._make_reader = make_reader
        self._spark, self._config, self._database, self._cluster_id = (
            spark,
            config,
            database,
            cluster_id,
        )
        self._clock, self._on_commit, self._shard = clock, on_commit, shard
        self._lease = database.acquire(f"consumer:{shard}")
        self._ledger_uuid = database.identity()[0]
        self._checkpoint = checkpoint_dir(config.etl.scratch_dir, shard)
        self._naming = CentralTopicNames.from_settings(config.kafka)
        self._query: StreamingQuery | None = None
        self._error: HourmarkError | None = None  # of the batch that ended the query
        self._staging = threading.Lock()
        self._stopping = False
        self._pause_s, self._again_at_s = 1.0, 0.0

    def start(self) -> None:
        """Start the query at the offsets recorded in the ledger, the ETL's state database.

        The shard's Spark checkpoint is deleted first, because its offsets may differ from those in
        the ledger.

        Raises:
            Py4JJavaError: Spark could not start the query.
        """
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._error, self._stopping = None, False
        reader = self._make_reader(
            self._config,
            self._lease,
            self._shard,
            self._ledger_uuid,
            task_attempts_max(self._spark),
        )
        self._spark.dataSource.register(kafka_source(self._shard, reader))
        self._query = (
            self._spark.readStream.format(source_name(self._shard))
            .load()
            .writeStream.foreachBatch(self._stage)
            .option("checkpointLocation", self._checkpoint.as_uri())
            .trigger(processingTime=f"{self._config.etl.trigger_seconds} seconds")
            .queryName(f"hourmark-consumer-{self._shard}")
            .start()
        )
        _LOG.info("staging shard %s from the ledger's offsets", self._shard)

    def check(self) -> None:
        """Restart the query if it ended because a server was unavailable or records were lost.

        Call this method periodically. It returns immediately while the query is running. The delay
        before a restart doubles each time, up to 30 seconds.

        Raises:
            EtlStop: The query ended for a reason that a restart does not fix. End the process.
            HourmarkError: The query ended with this error, which a restart does not fix.
        """
        if self._query is None and self._clock.monotonic_s() >= self._again_at_s:
            try:
                self.start()
            except (
                Py4JJavaError
            ) as refused:  # Spark asks a Python process, which may have died with the last query
                return self._begin_again(classify_spark_error(str(refused)))
        if self._query is None or self._query.isActive:
            return None
        error = self._error or classify_spark_error(format_query_error(self._query.exception()))
        self._query = None
        return self._begin_again(error)

    def _begin_again(self, error: HourmarkError) -> None:
        if not isinstance(
            error, Unavailable | DataLoss
        ):  # what is lost is passed over when the next plan begins
            raise error
        _LOG.warning(
            "staging of shard %s failed and restarts from the ledger's offsets in %.0f s: %s",
            self._shard,
            self._pause_s,
            error,
        )
        self._again_at_s = self._clock.monotonic_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    def stop(self) -> None:
        """Stop the query after the current batch is committed, or after 10 seconds at the latest.

        If the batch is not committed by then, it is staged again after the next start. If the query
        is not running, nothing is done.
        """
        if self._query is None:
            return
        self._stopping = True
        if self._staging.acquire(timeout=STOP_S):
            # Not held during the stop: Spark waits for its thread, which may be about to call
            # `_stage`, and `_stage` would wait for the lock.
            self._staging.release()
        query, self._query = self._query, None
        query.stop()

    def _stage(self, frame: DataFrame, batch_id: int) -> None:
        with self._staging:
            if self._stopping:
                return
            began_s = self._clock.monotonic_s()
            try:
                results = unpack_results(frame.collect())
                if not results:
                    return
                batch = self._commit(results)
            except (PySparkException, Py4JError):
                raise  # Spark reports it as the query's error
            except Exception as error:
                self._error = to_hourmark_error(error)
                raise
            self._pause_s = 1.0
            took_s = self._clock.monotonic_s() - began_s
            self._on_commit(batch, took_s)
            if events := sum(g.rows for g in batch.groups):
                _LOG.info(
                    "staged %d events in %.1f s (shard %s, batch %d)",
                    events,
                    took_s,
                    self._shard,
                    batch_id,
                )

    def _commit(self, results: Sequence[TaskResult]) -> StagedBatch:
        now_ms = self._clock.now_ms()
        batch = build_batch(results, self._cluster_id, self._shard, now_ms)
        for error in ledger.commit_batch(
            self._database, self._lease, batch, collect_read_errors(results, now_ms), now_ms=now_ms
        ):
            _LOG.error(
                "%s. Staging retries it at increasing intervals, and continues with all other "
                "partitions; `hourmark etl skip-unreadable %s %d` skips the unreadable offsets",
                error,
                error.topic,
                error.partition,
            )
        if truncated := {
            Partition(u.topic, u.partition) for r in results for u in r.unread if u.is_truncated
        }:
            central = Cluster(self._config.kafka.central_cluster, "central")
            restart_truncated_partitions(
                self._database,
                self._lease,
                central,
                self._cluster_id,
                self._naming.at_edge,
                truncated,
                now_ms,
            )
        for of in batch.set_aside:
            _LOG.error(
                "topic %s partition %d: %d records from offset %d are set aside and are not "
                "stored in a bucket: %s. They were not written by a delivery service, or their "
                "bytes changed; `hourmark etl set-aside ls %s` lists them",
                of.topic,
                of.partition,
                len(of.offsets),
                of.offsets[0],
                of.reason,
                of.event_type,
            )
        return batch


def restart_truncated_partitions(
    database: Database,
    lease: Lease,
    central: Cluster,
    cluster_id: str,
    to_edge_topic: Callable[[str], str],
    truncated: Collection[Partition],
    now_ms: int,
) -> None:
    """Reset the staging positions of partitions whose logs were truncated.

    A staging position is the next offset to copy to storage. Topics of events and host reports are
    staged again from the log start; duplicates are dropped later. Audit topics keep their position,
    and hours stay open until an operator's override accepts the loss.

    Args:
        database: The ledger (the ETL's state database), which stores the positions.
        lease: Lease of the consumer that stages the partitions.
        central: The central cluster.
        cluster_id: Id of the central cluster.
        to_edge_topic: Function that maps a central topic name to its name at the edge.
        truncated: Partitions whose logs have lost records.
        now_ms: Current time in Unix milliseconds.

    Raises:
        StaleDriver: Another consumer has taken over the lease, or a position has changed.
        Unavailable: The cluster does not respond.
    """
    starts = central.starts([*truncated])
    known = ledger.positions(database, cluster_id)
    ledger.restart_truncated_logs(
        database,
        lease,
        to_edge_topic,
        {p: starts[p.topic_partition] for p in known if p.topic_partition in truncated},
        now_ms,
    )


def build_batch(
    results: Sequence[TaskResult], cluster_id: str, shard: str, now_ms: int
) -> StagedBatch:
    """Combine the results of all Spark tasks of a micro-batch into one batch for the ledger.

    The caller must commit the batch to the ledger, which is the state database of the ETL.

    Args:
        results: Results of all tasks. The offset ranges of each partition must be contiguous.
        cluster_id: Id of the central cluster.
        shard: Name of the batch's shard, which is a set of event types.
        now_ms: Current time in Unix milliseconds.

    Returns:
        The batch, which contains the positions before and after it, the written files, host reports
        and malformed records.
    """
    spans = defaultdict[Partition, list[OffsetSpan]](list)
    for s in (s for a in results for s in a.spans):
        spans[Partition(s.topic, s.partition)].append(s)
    starts, ends = [], []
    for found in spans.values():
        found.sort(key=lambda s: s.start)
        assert all(a.end == b.start for a, b in itertools.pairwise(found)), (
            f"pieces of {found[0].topic} leave a gap"
        )
        first = found[0]
        starts.append(
            StagingPosition(
                cluster_id=cluster_id,
                topic_id=first.topic_id,
                topic=first.topic,
                partition=first.partition,
                next_offset=first.start,
                shard=shard,
            )
        )
        epochs = [(s.leader_epoch, s.epoch_next) for s in found if s.epoch_next is not None]
        epoch, epoch_next = epochs[-1] if epochs else (None, None)
        ends.append(
            dataclasses.replace(
                starts[-1], next_offset=found[-1].end, leader_epoch=epoch, epoch_next=epoch_next
            )
        )
    files = tuple(f.file for a in results for f in a.piece.files)
    reports = sorted(r for a in results for r in a.piece.reports)
    return StagedBatch(
        folder=files[0].path.rpartition("/")[0] if files else "",
        starts=tuple(starts),
        ends=tuple(ends),
        files=files,
        groups=tuple(g for a in results for g in a.piece.groups),
        audit_groups=tuple(g for a in results for g in a.piece.audit_groups),
        reports=tuple(decode_report(HostReport.decode(r.datum), now_ms) for r in reports),
        set_aside=tuple(of for a in results for of in a.piece.set_aside),
    )


def collect_read_errors(results: Sequence[TaskResult], now_ms: int) -> list[ReadError]:
    """Return the Kafka partitions that the Spark tasks of a batch could not read completely.

    Partitions whose logs have lost records are omitted; `restart_truncated_partitions` handles
    them.

    Args:
        results: Results of all tasks of the batch.
        now_ms: Current time in Unix milliseconds, recorded as the time of the failure.

    Returns:
        One error for each partition that could not be read completely, with offset and reason;
        empty if there are none.
    """
    return [
        ReadError(
            topic=u.topic, partition=u.partition, offset=u.offset, reason=u.why, since_ms=now_ms
        )
        for a in results
        for u in a.unread
        if not u.is_truncated
    ]


class ShardConsumers:
    """Runs one staging consumer per shard in the driver process.

    A shard is a set of event types that one Spark streaming query copies from Kafka to storage.
    Call `check` periodically, and call `stop` before the process ends.

    Args:
        make_consumer: Function that creates a consumer, given the name of its shard.
        database: The ledger (the ETL's state database), which lists all shards.
        shard_names: Names of the shards to run. If empty, all shards in the ledger are run,
            including those that are added later.
    """

    def __init__(
        self,
        make_consumer: Callable[[str], Consumer],
        database: Database,
        shard_names: Collection[str],
    ) -> None:
        self._make_consumer, self._database = make_consumer, database
        self._shard_names = frozenset(shard_names)
        self._consumers: dict[str, Consumer] = {}

    def check(self) -> None:
        """Start the consumers of new shards, and restart queries that have ended.

        A shard is a set of event types that one Spark streaming query copies from Kafka to storage.
        Call this method periodically. It returns immediately while all queries are running.

        Raises:
            EtlStop: A query ended for a reason that a restart does not fix. End the process.
            HourmarkError: A query ended with this error, which a restart does not fix.
        """
        for shard in sorted(
            (self._shard_names or ledger.shards(self._database)) - self._consumers.keys()
        ):
            self._consumers[shard] = self._make_consumer(shard)
            self._consumers[shard].start()
        for consumer in self._consumers.values():
            consumer.check()

    def stop(self) -> None:
        """Stop the queries of all shards, one after the other.

        A shard is a set of event types that one Spark streaming query copies from Kafka to storage.
        For each shard, this method waits up to 10 seconds (`STOP_S`) until the current batch is
        committed. If the batch is not committed by then, it is staged again after the next start.
        """
        for consumer in self._consumers.values():
            consumer.stop()
