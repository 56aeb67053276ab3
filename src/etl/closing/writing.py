"""Writes sealed hours: deduplicated rows into Avro containers, as one Spark job for many types at once.

Rows travel with the id in front and the datum untouched; no event is decoded. An id stands once in a bucket (rows are sorted
by id and equal neighbours dropped), and a late event whose id an earlier bucket holds is left out.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.avro_container import ContainerWriter
from etl.closing.frames import event_rows
from etl.ledger.rows import StagedGroup
from etl.storage import Storage, open_storage
from hourmark.config import Storage as StorageSettings
from hourmark.event_id import EventId
from hourmark.hours import Hour, hour_start_s

_COLUMNS: Final = ("event_id", "schema_id", "datum")
_OUTPUT_SCHEMA: Final = "written string"
_PARTITIONS_MAX: Final = 512


@dataclasses.dataclass(frozen=True)
class SealedHour:
    """What one bucket is to hold: listed groups, and those of earlier buckets that hold its late events' origin hours."""

    event_type: str
    hour: Hour
    listed: tuple[StagedGroup, ...]
    earlier: tuple[StagedGroup, ...]


@dataclasses.dataclass(frozen=True)
class WrittenFile:
    """One container file, below the job's folder. `id_sum`: of the ids' last 8 bytes, modulo 2^64."""

    event_type: str
    late: bool
    schema_id: int
    path: str
    records: int
    bytes: int
    blake2b: str
    id_sum: int
    origin_hours: Mapping[int, int]  # late files: records by origin hour, Unix seconds


def write_hours(
    spark: SparkSession,
    storage: Storage,
    settings: StorageSettings,
    sealed: Collection[SealedHour],
    schemas: Mapping[int, str],
    folder: str,
    *,
    target_file_bytes: int,
    tasks: int,
) -> list[WrittenFile]:
    """Write all of them into `folder`; an hour without rows gives no file. Safe to repeat into another folder."""
    filled = [s for s in sealed if s.listed]
    if not filled:
        return []
    parts = {s.event_type: 1 + sum(g.datum_bytes for g in s.listed) // target_file_bytes for s in filled}
    slots = spark.createDataFrame(
        [(s.event_type, s.hour.start_s, parts[s.event_type]) for s in filled], "type string, bucket long, parts int"
    )
    rows = _without_earlier(spark, storage, filled).join(F.broadcast(slots), "type")
    partitions = max(tasks, min(_PARTITIONS_MAX, sum(parts.values())) if max(parts.values()) > 1 else tasks)
    arranged = (
        rows.withColumn("slot", F.pmod(F.xxhash64("event_id"), F.col("parts")))
        .withColumn("late", F.col("hour") < F.col("bucket"))
        .repartition(partitions, "type", "slot")
        .sortWithinPartitions("type", "late", "slot", "event_id", "schema_id")
        .select("type", "late", "slot", *_COLUMNS)
    )
    length_s = filled[0].hour.length_s

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_task(batches, settings, folder, schemas, length_s)

    written = arranged.mapInArrow(run, _OUTPUT_SCHEMA).collect()
    return [_from_json(row.written) for row in written]


def _without_earlier(spark: SparkSession, storage: Storage, sealed: Collection[SealedHour]) -> DataFrame:
    rows = event_rows(spark, storage, [g for s in sealed for g in s.listed], _COLUMNS)
    earlier = [g for s in sealed for g in s.earlier]
    if not earlier:
        return rows
    ids = event_rows(spark, storage, earlier, ("event_id",)).select("type", "event_id")
    return rows.join(ids, ["type", "event_id"], "left_anti")


def write_task(
    batches: Iterable[pa.RecordBatch], settings: StorageSettings, folder: str, schemas: Mapping[int, str], length_s: int
) -> Iterator[pa.RecordBatch]:
    """In a Spark task: rows sorted by (type, late, slot, event id) → a container for each (type, late, slot, schema)."""
    storage = open_storage(settings)
    run: _Run | None = None
    for batch in batches:
        types, lates, slots = (batch.column(i).to_pylist() for i in range(3))
        ids, schema_ids, values = (batch.column(i).to_pylist() for i in range(3, 6))
        for key, event_id, schema_id, value in zip(zip(types, lates, slots, strict=True), ids, schema_ids, values, strict=True):
            if run is None or run.key != key:
                if run is not None:
                    yield from run.finish()
                run = _Run(key, storage, folder, schemas, length_s)
            run.take(event_id, schema_id, value)
    if run is not None:
        yield from run.finish()


class _Run:
    """The rows of one (type, late, slot): one open container for each schema id among them."""

    def __init__(
        self, key: tuple[str, bool, int], storage: Storage, folder: str, schemas: Mapping[int, str], length_s: int
    ) -> None:
        self.key = key
        self._storage, self._folder, self._schemas, self._length_s = storage, folder, schemas, length_s
        self._last_id = b""
        self._open: dict[int, _OpenFile] = {}

    def take(self, event_id: bytes, schema_id: int, value: bytes) -> None:
        """Append the datum, unless its id was the last one's."""
        if event_id == self._last_id:
            return
        self._last_id = event_id
        if schema_id not in self._open:
            path = f"{self._folder}/{uuid.uuid4().hex}.avro"
            self._open[schema_id] = _OpenFile(self._storage, path, self._schemas[schema_id])
        self._open[schema_id].append(EventId(event_id), value, self._length_s if self.key[1] else None)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Close all containers; one row each."""
        for schema_id, file in self._open.items():
            fields = {"event_type": self.key[0], "late": self.key[1], "schema_id": schema_id, **file.finish()}
            yield pa.RecordBatch.from_pydict({"written": [json.dumps(fields)]})


class _OpenFile:
    """A container being written, with what the manifest will say of it."""

    def __init__(self, storage: Storage, path: str, schema_json: str) -> None:
        self._path = path
        self._context = storage.create(path)
        self._writer = ContainerWriter(self._context.__enter__(), schema_json)
        self._id_sum = 0
        self._origin_hours: dict[int, int] = {}

    def append(self, event_id: EventId, value: bytes, late_length_s: int | None) -> None:
        self._writer.append(value)
        self._id_sum += event_id.tail
        if late_length_s is not None:
            hour = hour_start_s(event_id.time_ms, late_length_s)
            self._origin_hours[hour] = self._origin_hours.get(hour, 0) + 1

    def finish(self) -> dict[str, Any]:
        stats = self._writer.close()
        self._context.__exit__(None, None, None)
        return {
            "path": self._path,
            "records": stats.records,
            "bytes": stats.bytes,
            "blake2b": stats.blake2b,
            "id_sum": self._id_sum % (1 << 64),
            "origin_hours": self._origin_hours,
        }


def _from_json(text: str) -> WrittenFile:
    fields = json.loads(text)
    fields["origin_hours"] = {int(hour): count for hour, count in fields["origin_hours"].items()}
    return WrittenFile(**fields)
