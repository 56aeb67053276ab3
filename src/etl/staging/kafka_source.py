"""Kafka as a streaming source that keeps the data out of the JVM: tasks read and stage, and hand on only what they staged.

An "offset" of this source is a whole planned batch, so what Spark writes down of it is never used to begin anywhere: the next
batch begins where the ledger stands. Why not Spark's own Kafka source: docs/decisions.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from etl.ledger.database import Lease
from etl.staging.kafka_task import read_and_stage
from etl.staging.pieces import StagePlan
from etl.staging.planner import PlannedBatch, ReadSpan
from etl.staging.planning import Planner
from etl.topics import CentralTopics
from hourmark.config import Config

COLUMN: Final = "staged"


class _Task(InputPartition):
    """One task's spans, and where its files go."""

    def __init__(self, folder: str, spans: tuple[ReadSpan, ...]) -> None:
        super().__init__(None)
        self.folder, self.spans = folder, spans


class _StreamReader(DataSourceStreamReader):
    def __init__(self, config: Config, lease: Lease, shard: str, ledger: str) -> None:
        self._config, self._lease, self._shard, self._ledger = config, lease, shard, ledger
        self._planner: Planner | None = None
        self._last: dict[str, Any] = {"nothing": "planned yet"}

    def initialOffset(self) -> dict[str, Any]:
        return self._last

    def latestOffset(self) -> dict[str, Any]:
        if self._planner is None:
            self._planner = Planner(self._config, self._lease, self._shard)
        planned = self._planner.next_batch()
        if planned is not None:
            self._last = planned.to_json()
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        planned = PlannedBatch.from_json(end)
        return [_Task(planned.folder, spans) for spans in planned.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Task)
        kafka = self._config.kafka
        plan = stage_plan(self._config, partition.folder, {s.span.topic for s in partition.spans}, self._ledger)
        for answer in read_and_stage(partition.spans, plan, kafka.central_cluster, kafka.max_message_bytes):
            yield pa.RecordBatch.from_pydict({COLUMN: [pickle.dumps(answer)]})

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}


def stage_plan(config: Config, folder: str, topics: set[str], ledger: str) -> StagePlan:
    """What staging records of these central topics must know; `ledger`: its UUID."""
    control = CentralTopics.of(config.kafka, ())
    types = {topic: t for topic in topics if (t := control.type_of(topic)) is not None}
    return StagePlan(config.storage, folder, config.parsing.bucket_seconds, types, control.audit, control.hosts, ledger)


def kafka_source(config: Config, lease: Lease, shard: str, ledger: str) -> type[DataSource]:
    """The source of one shard, to be registered; its name is `source_name(shard)`.

    A class of its own, because the options of a source are shown in plans, and these settings may hold secrets.
    """

    class KafkaSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name(shard)

        def schema(self) -> str:
            return f"{COLUMN} binary"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002
            return _StreamReader(config, lease, shard, ledger)

    return KafkaSource


def source_name(shard: str) -> str:
    """As `readStream.format` takes it."""
    return f"hourmark-{shard}"
