"""Kafka as a streaming source whose data bypasses the JVM: tasks read, stage and return results.

An offset of this source is a complete planned batch, so Spark's record of it is never used to
resume: each batch starts at the positions in the ledger. Why Spark's own Kafka source is not used:
docs/internals/decisions.

`Planner` connects `plan` to ledger and cluster, in Spark's process for the source. The ledger
defines the start offsets and the types, so a new type or partition is included in the next batch
without a restart.
"""

from __future__ import annotations

import logging
import pickle
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster, NoLeader, Offset, Partition, bootstrap_addresses
from hourmark.kafka.topic_names import AUDIT
from hourmark_etl.execution.task_failures import TaskFailure, catch_task_failure, raise_failures
from hourmark_etl.execution.worker_reuse import freeze_loaded_modules
from hourmark_etl.ledger import batches as ledger
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.partitions.read_errors import (
    ReadError,
    delete_resolved_read_errors,
    read_errors,
    record_read_errors,
)
from hourmark_etl.ledger.schemas import SchemaCheck, load_schema_checks
from hourmark_etl.model import StagingPosition
from hourmark_etl.staging.pieces import StagePlan
from hourmark_etl.staging.plan import (
    PlannedBatch,
    ReadSpan,
    assign_to_tasks,
    find_resume_offset,
    make_empty_span,
    plan_spans,
)
from hourmark_etl.staging.source import COLUMN
from hourmark_etl.staging.stage import TaskResult, read_and_stage
from hourmark_etl.storage import Storage, open_storage
from hourmark_etl.storage.folders import STAGING_FOLDER
from hourmark_etl.topics import CentralTopicNames, resolve_positions

_LOG = logging.getLogger(__name__)
REFRESH_S: Final = 30.0  # between comparisons of topic ids, log starts and numbers of partitions


class StagingSchemas(NamedTuple):
    """The event types and event checks, by schema id, for tasks that copy Kafka records to storage.

    Attributes:
        types: Event type of each schema id in the ledger (the ETL's state database). Schema ids
            with a damaged row are omitted.
        programs: Compiled check by schema id, which tells whether an encoded event is valid
            (`hourmark.avro.datum_check`).
    """

    types: Mapping[int, str]
    programs: Mapping[int, bytes]


class _Task(InputPartition):
    def __init__(
        self,
        folder: str,
        spans: tuple[ReadSpan, ...],
        schemas: StagingSchemas,
        bootstrap: str,
        storage: Storage,
    ) -> None:
        super().__init__(None)
        self.folder, self.spans, self.schemas, self.bootstrap = folder, spans, schemas, bootstrap
        self.storage = storage  # of the driver: with Kerberos, its pickle contains a token


class _FailedPlan(InputPartition):
    # A Spark task that only reports to the driver why the batch could not be planned.
    def __init__(self, failure: TaskFailure) -> None:
        super().__init__(None)
        self.failure = failure


class StreamReader(DataSourceStreamReader):
    """Spark stream reader that copies the event types of one shard from Kafka to staged files.

    Spark calls it to plan micro-batches and to run their tasks. Errors are not raised to Spark.
    They are returned as a `TaskFailure` in the result of a task, and the driver raises them.

    Args:
        config: The configuration.
        lease: Lease of the shard's consumer.
        shard: Name of the shard, which is a set of event types that one streaming query copies.
        ledger: UUID of the ledger, the state database of the ETL.
        attempts_max: Maximum number of times that Spark attempts a task.
        planner: Planner of the batches. If None, one is created for the first batch.
    """

    def __init__(
        self,
        config: Config,
        lease: Lease,
        shard: str,
        ledger: str,
        attempts_max: int = 1,
        planner: Planner | None = None,
    ) -> None:
        self._config, self._lease, self._shard, self._ledger = config, lease, shard, ledger
        self._attempts_max = attempts_max
        self._planner = planner
        self._last = PlannedBatch("", ()).to_json()
        self._failure: TaskFailure | None = None  # of the last plan
        self._driver_storage: Storage | None = None  # in a process that the driver started

    def initialOffset(self) -> dict[str, Any]:
        return self._last

    def latestOffset(self) -> dict[str, Any]:
        try:
            if planned := self.plan():
                self._last = planned.to_json()
        except Exception as error:  # noqa: BLE001  # raised again by the driver
            self._failure = TaskFailure.from_error(error)
            # Spark runs a batch only if the offset differs from the last one.
            self._last = {"failure": uuid.uuid4().hex}
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        if self._failure is not None:
            return [_FailedPlan(self._failure)]
        try:
            return self.tasks(PlannedBatch.from_json(end))
        except Exception as error:  # noqa: BLE001  # raised again by the driver
            return [_FailedPlan(TaskFailure.from_error(error))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_loaded_modules()
        if isinstance(partition, _FailedPlan):
            yield pack_result(partition.failure)
            return
        for result in catch_task_failure(lambda: self.stage(partition), self._attempts_max):
            yield pack_result(result)

    def plan(self) -> PlannedBatch | None:
        """Plan the next micro-batch from the ledger's positions and the ends of the Kafka logs.

        The ledger (the ETL's state database) stores the next offset to read from each partition.

        Returns:
            The offset ranges of each task; None if there are no new records.

        Raises:
            EtlStop: A topic was recreated, so offsets no longer refer to the same records.
            StaleDriver: A newer consumer of the shard has acquired the lease. End this one.
            Unavailable: Kafka or the ledger cannot be reached.
        """
        return self._plans().next_batch()

    def tasks(self, planned: PlannedBatch) -> list[InputPartition]:
        """Create the Spark tasks of a planned batch, with the schemas of their topics.

        Args:
            planned: The planned batch.

        Returns:
            One task for each entry of `planned.tasks`; empty if the batch has no tasks.
        """
        if not planned.tasks:  # a query begins with a batch, also where there is nothing to stage
            return []
        bootstrap = bootstrap_addresses(self._config.kafka.central_cluster)
        schemas = [self._plans().schemas({s.span.topic for s in spans}) for spans in planned.tasks]
        storage = self._open_storage()
        return [
            _Task(planned.folder, spans, of, bootstrap, storage)
            for spans, of in zip(planned.tasks, schemas, strict=True)
        ]

    def stage(self, partition: InputPartition) -> Iterator[TaskResult]:
        """Read the records of one task from Kafka and write them to staged files.

        Args:
            partition: A task from `tasks`.

        Returns:
            An iterator that copies one chunk of records at a time, and yields its result.

        Raises:
            DataLoss: The log no longer has some of the task's offsets.
            Unavailable: Kafka or the storage cannot be reached.
        """
        assert isinstance(partition, _Task)
        kafka = self._config.kafka
        topics = {s.span.topic for s in partition.spans}
        plan = build_stage_plan(
            self._config, partition.folder, topics, self._ledger, partition.schemas
        )
        central = kafka.central_cluster.model_copy(update={"bootstrap": partition.bootstrap})
        return read_and_stage(
            partition.spans, plan, partition.storage, central, kafka.max_message_bytes
        )

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def _plans(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._config, self._lease, self._shard)
        return self._planner

    def _open_storage(self) -> Storage:
        return open_storage(self._config.storage, is_start=False, of_driver=self._driver_storage)

    def __getstate__(self) -> dict[str, Any]:
        # With Kerberos, the pickled storage contains a token of the driver.
        return {**self.__dict__, "_planner": None, "_driver_storage": self._open_storage()}


def pack_result(result: TaskResult | TaskFailure) -> pa.RecordBatch:
    """Pickle the result of a task into an Arrow row, which Spark returns to the driver.

    `unpack_results` is the inverse.

    Args:
        result: The result, or a failure that the driver will raise.

    Returns:
        A record batch with one binary column and one row.
    """
    return pa.RecordBatch.from_pydict({COLUMN: [pickle.dumps(result)]})


def unpack_results(rows: Iterable[Row]) -> list[TaskResult]:
    """Unpickle the results that the Spark tasks of a batch returned to the driver.

    Args:
        rows: Rows that `pack_result` created, as collected by Spark.

    Returns:
        One result per chunk of Kafka records that was copied to storage, in the order of the rows.

    Raises:
        HourmarkError: Planning or a task failed with this error. Do not commit the batch.
    """
    packed: list[TaskResult | TaskFailure] = [
        pickle.loads(row[COLUMN])  # noqa: S301  # of our own tasks
        for row in rows
    ]
    return raise_failures(packed)


def build_stage_plan(
    config: Config, folder: str, topics: set[str], ledger: str, schemas: StagingSchemas
) -> StagePlan:
    """Create the settings of a task that copies the records of some topics from Kafka to storage.

    Args:
        config: The configuration.
        folder: Folder of the batch, relative to the storage root.
        topics: Names of the topics on the central cluster that the task reads.
        ledger: UUID of the ledger, the state database of the ETL.
        schemas: Event types and checks of schema ids.

    Returns:
        The settings, which can be pickled and sent to Spark's executors.
    """
    control = CentralTopicNames.from_settings(config.kafka)
    return StagePlan(
        folder=folder,
        bucket_seconds=config.parsing.bucket_seconds,
        types={topic: t for topic in topics if (t := control.type_of(topic))},
        audits=control.audits,
        hosts=control.hosts,
        ledger=ledger,
        schema_types=schemas.types,
        programs=schemas.programs,
    )


def load_schemas(
    config: Config,
    database: Database,
    topics: Collection[str],
    known: dict[int, SchemaCheck] | None = None,
) -> StagingSchemas:
    """Load the event type of every schema id, and the event checks for the given topics.

    Args:
        config: The configuration.
        database: The ledger (the ETL's state database).
        topics: Names of topics on the central cluster. Checks are returned for their event types.
        known: Cache of schemas from earlier calls, to which new schemas are added; None to read all
            schemas from the ledger.

    Returns:
        The event types of all schema ids in the ledger, and the checks.
    """
    naming, checks = CentralTopicNames.from_settings(config.kafka), {} if known is None else known
    load_schema_checks(database, checks)
    own = {naming.type_of(topic) for topic in topics}
    programs = {
        schema_id: of.program
        for schema_id, of in checks.items()
        if of.program and of.event_type in own
    }
    return StagingSchemas({schema_id: of.event_type for schema_id, of in checks.items()}, programs)


class Planner:
    """Plans the micro-batches of one shard from the staging positions in the ledger.

    The ledger is the state database of the ETL. A staging position is the next offset of a
    partition to copy from Kafka to storage.

    Args:
        config: The configuration.
        lease: Lease of the shard's consumer.
        shard: Name of the shard, which is a set of event types that one streaming query stages.
    """

    def __init__(self, config: Config, lease: Lease, shard: str) -> None:
        self._config, self._lease, self._shard = config, lease, shard
        self._database = Database(config.etl.ledger)
        self._central = Cluster(config.kafka.central_cluster, "central")
        self._cluster_id = self._central.cluster_id()
        self._at_edge = CentralTopicNames.from_settings(config.kafka).at_edge
        self._types: frozenset[str] = frozenset()
        self._compared: dict[Partition, tuple[int, int]] = {}  # leader epoch and position
        self._checks: dict[int, SchemaCheck] = {}
        self._missing: frozenset[str] = frozenset()  # topics of events, as of the last refresh
        self._refreshed_s = -REFRESH_S

    def next_batch(self) -> PlannedBatch | None:
        """Plan the next micro-batch.

        Partitions with a recent read error are omitted until their next retry. If a log ends before
        its staging position (next offset to copy to storage), it has lost records. Topics of events
        and host reports are then copied again from the log start. Audit topics keep their position.

        Returns:
            The offset ranges of each task; None if there are no new records.

        Raises:
            EtlStop: A topic was recreated, so offsets no longer refer to the same records.
            StaleDriver: A newer consumer of the shard has acquired the lease. End this one.
            Unavailable: Kafka or the ledger cannot be reached.
        """
        shards = ledger.read_type_shards(self._database)
        self._hand_over(shards)
        types = frozenset(t for t, shard in shards.items() if shard == self._shard)
        topics = frozenset(
            CentralTopicNames.from_settings(self._config.kafka, types).for_shard(self._shard)
        )
        if types != self._types or time.monotonic() - self._refreshed_s >= REFRESH_S:
            self._refresh(topics)
            self._types, self._refreshed_s = types, time.monotonic()
        own = [p for p in self._own(topics) if p.topic not in self._missing]
        now_ms = SystemClock().now_ms()
        errors = read_errors(self._database)
        held = {p for p, error in errors.items() if error.again_at_ms > now_ms}
        own, ends = self._ends([p for p in own if p.topic_partition not in held], now_ms)
        delete_resolved_read_errors(
            self._database,
            self._lease,
            [
                p.topic_partition
                for p in own
                if p.topic_partition in errors and ends[p.topic_partition] <= p.next_offset
            ],
        )
        if short := [p for p in own if ends[p.topic_partition] < p.next_offset]:
            if any(
                self._at_edge(p.topic) != AUDIT for p in short
            ):  # else it stays short, for as long as it takes
                self._refresh(topics)  # a topic that was deleted and recreated is refused
            starts = self._central.starts([p.topic_partition for p in short])
            ledger.restart_truncated_logs(
                self._database,
                self._lease,
                self._at_edge,
                {p: starts[p.topic_partition] for p in short},
                now_ms,
            )
            own = [p for p in self._own(topics) if p.topic_partition in ends]
        etl = self._config.etl
        with_epoch = [
            p.topic_partition
            for p in own
            if p.leader_epoch is not None and ends[p.topic_partition] > p.next_offset
        ]
        log_starts: dict[Partition, int] = {
            **dict.fromkeys(ends, 0),
            **self._central.starts(with_epoch),
        }
        limits = {"records_max": etl.batch_records_max, "type_bytes_max": etl.type_batch_bytes_max}
        spans = [*plan_spans(own, ends, **limits, starts=log_starts), *self._to_compare(own, ends)]
        if not spans:
            return None
        return PlannedBatch(
            f"{STAGING_FOLDER}/{self._lease.epoch:012d}-{self._shard}-{uuid.uuid4().hex}",
            assign_to_tasks(spans, etl.tasks),
        )

    def schemas(self, topics: Collection[str]) -> StagingSchemas:
        """Return the event type of every schema id, and the event checks for the given topics.

        Args:
            topics: Names of topics on the central cluster.

        Returns:
            The event types of all schema ids in the ledger (the ETL's state database), and the
            compiled checks for the event types of the given topics.
        """
        return load_schemas(self._config, self._database, topics, self._checks)

    def close(self) -> None:
        """Close the connections to the ledger (the ETL's state database)."""
        self._database.close()

    def _known(self) -> list[StagingPosition]:
        return ledger.positions(self._database, self._cluster_id)

    def _own(self, topics: Collection[str]) -> list[StagingPosition]:
        return [p for p in self._known() if p.topic in topics and p.shard == self._shard]

    def _to_compare(
        self, own: Collection[StagingPosition], ends: Mapping[Partition, Offset]
    ) -> list[ReadSpan]:
        # Reading an empty span lets the broker compare leader epochs. Only this comparison detects
        # a log that lost records and then grew to the same end offset again. Compare each leader
        # once.
        found = []
        for p in own:
            now = ends[p.topic_partition].leader_epoch
            if (
                ends[p.topic_partition] == p.next_offset
                and p.leader_epoch is not None
                and now is not None
                and now > p.leader_epoch
            ):
                seen = (now, p.next_offset)
                if (
                    self._compared.get(p.topic_partition) != seen
                    and (begin := find_resume_offset(p, 0)) is not None
                ):
                    found.append(ReadSpan(make_empty_span(p), 1, begin))
                    self._compared[p.topic_partition] = seen
        return found

    def _ends(
        self, own: list[StagingPosition], now_ms: int
    ) -> tuple[list[StagingPosition], dict[Partition, Offset]]:
        try:
            return own, self._central.ends([p.topic_partition for p in own])
        except NoLeader:
            away = self._central.leaderless({p.topic for p in own})
            if not away & {p.topic_partition for p in own}:
                raise
        self._record([p for p in own if p.topic_partition in away], "no broker leads it", now_ms)
        led = [p for p in own if p.topic_partition not in away]
        return led, self._central.ends([p.topic_partition for p in led])

    def _record(self, positions: Sequence[StagingPosition], why: str, now_ms: int) -> None:
        errors = [
            ReadError(
                topic=p.topic,
                partition=p.partition,
                offset=p.next_offset,
                reason=why,
                since_ms=now_ms,
            )
            for p in positions
        ]
        for error in record_read_errors(self._database, self._lease, errors):
            _LOG.error(
                "%s. Staging retries it at increasing intervals, and continues with all other "
                "partitions",
                error,
            )

    def _refresh(self, topics: Collection[str]) -> None:
        known = self._known()
        begun, naming = (
            {p.topic for p in known},
            CentralTopicNames.from_settings(self._config.kafka),
        )
        required = {t for t in topics if t not in begun or naming.type_of(t) is None}
        wanted, missing = resolve_positions(self._central, topics, known, self._shard, required)
        self._record(
            [p for p in known if p.topic in missing],
            "the topic does not exist",
            SystemClock().now_ms(),
        )
        self._missing = frozenset(missing)
        if wanted:
            ledger.insert_new_positions(self._database, self._lease, wanted)
            starts = self._central.starts([p.topic_partition for p in wanted])
            ledger.skip_expired_offsets(
                self._database,
                self._lease,
                self._at_edge,
                {p: starts[p.topic_partition] for p in wanted},
            )

    def _hand_over(self, shards: Mapping[str, str]) -> None:
        naming = CentralTopicNames.from_settings(self._config.kafka)
        own = {
            p.topic: shards.get(naming.type_of(p.topic) or "", self._shard)
            for p in self._known()
            if p.shard == self._shard
        }
        if moved := {topic: to for topic, to in own.items() if to != self._shard}:
            ledger.assign_topics_to_shards(self._database, self._lease, moved)
