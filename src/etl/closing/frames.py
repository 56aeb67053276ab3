"""Spark frames of what the ledger lists: exactly those groups of staged files, no row more.

A staged file holds many types and hours; its name is unique, so (file name, type, hour) names a group. The table of wanted
groups is small and travels to the executors.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.ledger.rows import AuditGroup, StagedGroup
from etl.storage import Storage

_TAIL = "cast(conv(hex(substring(event_id, 9, 8)), 16, -10) as long) as tail"
_GROUP_COLUMNS = "file string, type string, hour long"


def event_rows(spark: SparkSession, storage: Storage, wanted: Collection[StagedGroup], columns: Collection[str]) -> DataFrame:
    """These columns of the groups' rows, with `type` and `hour`. There must be a group."""
    return _rows(spark, storage, wanted, columns)


def audit_rows(spark: SparkSession, storage: Storage, wanted: Collection[AuditGroup]) -> DataFrame:
    """Promises of these groups: type, hour, range_id, count, sum, offset, origin. There must be a group."""
    return _rows(spark, storage, wanted, ("range_id", "count", "sum", "offset", "origin"))


def _rows(
    spark: SparkSession, storage: Storage, wanted: Collection[StagedGroup] | Collection[AuditGroup], columns: Collection[str]
) -> DataFrame:
    groups = sorted({(_name(g.path), g.event_type, g.hour_s) for g in wanted})  # once each: a row must not be joined twice
    table = spark.createDataFrame(groups, _GROUP_COLUMNS)
    return (
        _read(spark, storage, {g.path for g in wanted}, columns).join(F.broadcast(table), ["file", "type", "hour"]).drop("file")
    )


def _read(spark: SparkSession, storage: Storage, paths: Collection[str], columns: Collection[str]) -> DataFrame:
    rows = spark.read.parquet(*(storage.url(path) for path in sorted(paths)))
    return rows.select(
        F.element_at(F.split(F.col("_metadata.file_path"), "/"), -1).alias("file"), "type", "hour",
        *(F.expr(_TAIL) if name == "tail" else name for name in columns),
    )  # fmt: skip


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
