"""The consumer: one Structured Streaming query over all topics of a shard, started from the ledger,
committed to the ledger.

Spark's checkpoint is scratch: it is deleted at each start, so restart, upgrade and a lost
checkpoint are one path. Offsets move only with the ledger transaction that names what was staged up
to them. Where Kafka, the storage or the ledger is away, the query ends and is begun again, later
and later; nothing else is tried twice.

Spark hands on errors of its Python processes as text, and what a driver does next depends on their
kind: `cause_of` finds it again. `Consumers` are those of a driver: one for each shard, those named
to it or all that the ledger knows.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import pickle
import re
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hourmark.clock import Clock
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError, Unavailable
from hourmark.kafka.clients import Cluster, Partition
from hourmark.records.host_reports import HostReport
from hourmark_etl.errors import DataLoss, EtlStop
from hourmark_etl.ledger import batches as ledger
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.read_errors import ReadError
from hourmark_etl.ledger.reporters import reporters_of
from hourmark_etl.model import OffsetSpan, StagedBatch, StagingPosition
from hourmark_etl.staging.planner import StreamReader
from hourmark_etl.staging.source import COLUMN, kafka_source, source_name
from hourmark_etl.staging.stage import TaskResult
from hourmark_etl.topics import CentralTopics

STOP_S: Final = 10.0  # what a batch under way is given to end by itself
PAUSE_S_MAX: Final = 30.0
_LOG = logging.getLogger(__name__)
_RAISED: Final = re.compile(r"^(?:.*: )?((?:hourmark|hourmark_etl)\.[\w.]+): (.*)$", re.MULTILINE)
# The process that plans speaks to Java over a socket; when it dies, that ends.
_LOST_PLANNER: Final = re.compile(
    r"EOFException$(?:\n\s+at .*)*PythonStreamingSourceRunner", re.MULTILINE
)
_LOST_WORKER: Final = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
    "Stream closed",
)
_NETWORK: Final = re.compile(
    r"^.*(?:Connection (?:refused|reset|timed out)|timed out|Broken pipe|No route to "
    r"host|Network is unreachable"
    r"|(?:Connection\w*|Timeout)Error|gaierror|(?:Connect|SocketTimeout|UnknownHost|NoRouteToHost|EOF)Exception).*$",
    re.MULTILINE,
)
_LINES_OF_CAUSE: Final = 15
Committed = Callable[[StagedBatch, float], None]  # told of each batch, and of the seconds it took


def checkpoint_of(scratch_dir: Path, shard: str) -> Path:
    """Where Spark keeps a shard's checkpoint.

    A relative folder is within the working one: in a container, its own.
    """
    return (scratch_dir / f"checkpoint-{shard}").absolute()


class Consumer:
    """Stages what arrives, batch by batch, until it is stopped.

    One per shard; the lease fences an older one.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        database: Database,
        cluster_id: str,
        clock: Clock,
        committed: Committed,
        shard: str,
    ) -> None:
        self._spark, self._config, self._database, self._cluster_id = (
            spark,
            config,
            database,
            cluster_id,
        )
        self._clock, self._committed, self._shard = clock, committed, shard
        self._lease = database.acquire(f"consumer:{shard}")
        self._ledger_uuid = database.identity()[0]
        self._checkpoint = checkpoint_of(config.etl.scratch_dir, shard)
        self._naming = CentralTopics.from_settings(config.kafka)
        self._query: StreamingQuery | None = None
        self._error: HourmarkError | None = (
            None  # of a batch; Spark's own report of it has lost its kind
        )
        self._staging = threading.Lock()
        self._stopping = False
        self._pause_s, self._again_at_s = 1.0, 0.0

    def start(self) -> None:
        """Begin from the ledger's offsets."""
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._error, self._stopping = None, False
        reader = StreamReader(self._config, self._lease, self._shard, self._ledger_uuid)
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
        """Begin the query again where a server was away, or records are lost; EtlStop, saying why,
        where it ended otherwise.
        """
        if self._query is None and self._clock.monotonic_s() >= self._again_at_s:
            try:
                self.start()
            except (
                Py4JJavaError
            ) as refused:  # Spark asks a Python process, which may have died with the last query
                return self._begin_again(cause_of(str(refused)))
        if self._query is None or self._query.isActive:
            return None
        error = self._error or cause_of(told_of(self._query.exception()))
        self._query = None
        return self._begin_again(error)

    def _begin_again(self, error: HourmarkError) -> None:
        if not isinstance(
            error, Unavailable | DataLoss
        ):  # what is lost is passed over when the next plan begins
            raise error
        _LOG.warning(
            "staging of shard %s begins again in %.0f s, from the ledger: %s",
            self._shard,
            self._pause_s,
            error,
        )
        self._again_at_s = self._clock.monotonic_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    def stop(self) -> None:
        """End the query; a batch under way is committed if it ends within `STOP_S`, and else will
        be staged again.
        """
        if self._query is None:
            return
        self._stopping = True
        ended = self._staging.acquire(timeout=STOP_S)
        try:
            self._query.stop()
        finally:
            self._query = None
            if ended:
                self._staging.release()

    def _stage(self, frame: DataFrame, batch_id: int) -> None:
        with self._staging:
            if self._stopping:
                return
            began_s = self._clock.monotonic_s()
            try:
                # of our own tasks
                answers: list[TaskResult] = [pickle.loads(row[COLUMN]) for row in frame.collect()]  # noqa: S301
                if not answers:
                    return
                batch = self._commit(answers)
            except HourmarkError as error:
                self._error = error
                raise
            self._pause_s = 1.0
            took_s = self._clock.monotonic_s() - began_s
            self._committed(batch, took_s)
            if events := sum(g.rows for g in batch.groups):
                _LOG.info(
                    "staged %d events in %.1f s (shard %s, batch %d)",
                    events,
                    took_s,
                    self._shard,
                    batch_id,
                )

    def _commit(self, answers: Sequence[TaskResult]) -> StagedBatch:
        now_ms = self._clock.now_ms()
        batch = batch_of(answers, self._cluster_id, self._shard, now_ms)
        for error in ledger.commit_batch(
            self._database, self._lease, batch, unread_of(answers, now_ms), now_ms=now_ms
        ):
            _LOG.error(
                "%s. It is tried again after growing pauses, and everything else is staged "
                "meanwhile; "
                "`hourmark etl skip-unreadable %s %d` gives up what cannot be read",
                error,
                error.topic,
                error.partition,
            )
        if truncated := {
            Partition(u.topic, u.partition) for a in answers for u in a.unread if u.is_truncated
        }:
            central = Cluster(self._config.kafka.central_cluster, "central")
            begin_truncated(
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
                "topic %s partition %d: %d records from offset %d on are set aside and in no "
                "bucket: %s. No delivery service "
                "wrote them, or their bytes changed; `hourmark etl set-aside ls %s` lists them",
                of.topic,
                of.partition,
                len(of.offsets),
                of.offsets[0],
                of.reason,
                of.event_type,
            )
        return batch


def begin_truncated(
    database: Database,
    lease: Lease,
    central: Cluster,
    cluster_id: str,
    at_edge: Callable[[str], str],
    truncated: Collection[Partition],
    now_ms: int,
) -> None:
    """Stage again from logs of which brokers say, by leader epochs, that they lost records
    (`batches.begin_again`).
    """
    starts = central.starts([*truncated])
    known = ledger.positions(database, cluster_id)
    ledger.begin_again(
        database,
        lease,
        at_edge,
        {p: starts[p.topic_partition] for p in known if p.topic_partition in truncated},
        now_ms,
    )


def batch_of(
    answers: Sequence[TaskResult], cluster_id: str, shard: str, now_ms: int
) -> StagedBatch:
    """What the tasks' answers commit together."""
    spans = defaultdict[Partition, list[OffsetSpan]](list)
    for s in (s for a in answers for s in a.spans):
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
    files = tuple(f.file for a in answers for f in a.piece.files)
    reports = sorted(r for a in answers for r in a.piece.reports)
    return StagedBatch(
        folder=files[0].path.rpartition("/")[0] if files else "",
        starts=tuple(starts),
        ends=tuple(ends),
        files=files,
        groups=tuple(g for a in answers for g in a.piece.groups),
        audit_groups=tuple(g for a in answers for g in a.piece.audit_groups),
        reports=tuple(reporters_of(HostReport.decode(r.datum), now_ms) for r in reports),
        set_aside=tuple(of for a in answers for of in a.piece.set_aside),
    )


def unread_of(answers: Sequence[TaskResult], now_ms: int) -> list[ReadError]:
    """Partitions that tasks could not stage further; those whose logs lost records begin again
    instead (`begin_truncated`).
    """
    return [
        ReadError(
            topic=u.topic, partition=u.partition, offset=u.offset, reason=u.why, since_ms=now_ms
        )
        for a in answers
        for u in a.unread
        if not u.is_truncated
    ]


def told_of(error: BaseException | None) -> str:
    """All that Spark says of a query's end.

    Where Java has no words for it, that is its kind, and where in Spark it came from.
    """
    said = str(error or "it ended by itself")
    trace = getattr(
        getattr(error, "_cause", None), "_stackTrace", ""
    )  # what PySpark shows of a cause is its words
    return f"{said}\n{trace}" if said.startswith("null\n") else said


def cause_of(text: str) -> HourmarkError:
    """The error that the text tells of; Unavailable for a lost worker or a server that cannot be
    reached; else EtlStop with the text's last lines.
    """
    for name, message in reversed(_RAISED.findall(text)):
        if kind := _kinds(HourmarkError).get(name):
            if issubclass(kind, Unavailable):
                return Unavailable(message)
            return kind(message) if kind.__init__ is HourmarkError.__init__ else EtlStop(message)
    if any(lost in text for lost in _LOST_WORKER):
        return Unavailable(
            "a Python worker of the staging query was lost; was it out of memory, "
            "killed, or the machine too busy?"
        )
    if _LOST_PLANNER.search(text):
        return Unavailable(
            "the Python process that plans the staging query was lost; was it out of "
            "memory, or killed?"
        )
    if found := _NETWORK.search(text):
        return Unavailable(f"a server that staging needs could not be reached: {found[0].strip()}")
    lines = "\n".join(text.splitlines()[-_LINES_OF_CAUSE:])
    return EtlStop(
        "staging has stopped; start the driver again, it goes on from the ledger. The "
        f"cause:\n{lines}"
    )


def _kinds(kind: type[HourmarkError]) -> dict[str, type[HourmarkError]]:
    """By its full name: the error, and all narrower ones."""
    found = {f"{kind.__module__}.{kind.__qualname__}": kind}
    for narrower in kind.__subclasses__():
        found |= _kinds(narrower)
    return found


class Consumers:
    """Takes in a shard that is new while it runs, unless shards were named: then others are left to
    other drivers.
    """

    def __init__(
        self, make: Callable[[str], Consumer], database: Database, named: Collection[str]
    ) -> None:
        self._make, self._database, self._named = make, database, frozenset(named)
        self._consumers: dict[str, Consumer] = {}

    def check(self) -> None:
        """Start what is not started; EtlStop as `Consumer.check`."""
        for shard in sorted(
            (self._named or ledger.shards(self._database)) - self._consumers.keys()
        ):
            self._consumers[shard] = self._make(shard)
            self._consumers[shard].start()
        for consumer in self._consumers.values():
            consumer.check()

    def stop(self) -> None:
        """End all queries, as `Consumer.stop`."""
        for consumer in self._consumers.values():
            consumer.stop()
