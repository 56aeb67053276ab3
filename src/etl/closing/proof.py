"""The proof: every promise up to the cut is kept by rows that are listed, here or before.

One Spark job for all types at once joins promises and rows by (type, hour, range id) over distinct event ids, and compares
counts and sums. This is the slow path in its plain form: it reads every listed row's ids.

A promise counts for the frontier hour H of its type if its audit record lies below the cut, and it is of H, or of an earlier
hour and not settled by an earlier seal. Its rows of earlier hours may stand in earlier buckets, so what is not found among
the rows listed now is looked up among those listed before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.closing.frames import audit_rows, event_rows
from etl.ledger import frontiers as ledger
from etl.ledger.database import Database
from etl.ledger.rows import AuditGroup, Frontier, StagedGroup
from etl.storage import Storage
from hourmark.hours import Hour

FINDINGS_MAX: Final = 20  # named per type; all are counted

_KEY: Final = ["type", "hour", "range_id"]


@dataclasses.dataclass(frozen=True, slots=True)
class Proof:
    """What the proof of one type's frontier hour found. Proved if `findings` is empty."""

    method: str
    audit_records: int
    promised: int
    surplus: int
    findings: tuple[str, ...] = ()


_EMPTY: Final = Proof("empty", 0, 0, 0)


class _Unkept(NamedTuple):
    """A promise without exactly its rows; the columns of `_unkept`."""

    type: str
    hour: int
    range_id: bytes
    promised: int
    promised_sum: int
    origin: str
    held: int | None

    def describe(self, length_s: int) -> str:
        """For people."""
        return (
            f"range {bytes(self.range_id).hex()} ({self.origin}): "
            f"{self.promised} events of {Hour(self.hour, length_s)} promised, "
            f"{self.held or 0} found" + (", but others" if self.held == self.promised else "")
        )


@dataclasses.dataclass(frozen=True)
class _Question:
    """What there is to prove for one type: promises that count now, those that only explain surplus, listed rows."""

    frontier: Frontier
    promises: tuple[AuditGroup, ...]
    explaining: tuple[AuditGroup, ...]
    rows: tuple[StagedGroup, ...]


def prove(
    spark: SparkSession, storage: Storage, database: Database, frozen: Collection[Frontier], audit_next: int
) -> dict[str, Proof]:
    """A proof for each frozen type, in as many Spark jobs as for one."""
    asked = [_question(database, f, audit_next) for f in frozen]
    proofs = {q.frontier.event_type: _EMPTY for q in asked if not q.promises and not q.rows}
    asked = [q for q in asked if q.frontier.event_type not in proofs]
    if asked:
        proofs |= _prove(spark, storage, database, asked, audit_next)
    return proofs


def _question(database: Database, f: Frontier, audit_next: int) -> _Question:
    listed = tuple(ledger.listed_groups(database, f.event_type, f.hour))
    late_hours = {g.hour_s for g in listed if g.hour_s < f.hour.start_s}
    current = ledger.audit_groups(database, f.event_type, {f.hour.start_s}, audit_next)
    late = ledger.new_audit_groups(database, f.event_type, f.hour, f.settled_next, audit_next)
    explaining = ledger.audit_groups(database, f.event_type, late_hours, audit_next)
    return _Question(f, tuple(current + late), tuple(explaining), listed)


def _prove(
    spark: SparkSession, storage: Storage, database: Database, asked: Sequence[_Question], audit_next: int
) -> dict[str, Proof]:
    known = _promises(spark, storage, asked, audit_next).cache()
    held = _held(spark, storage, [g for q in asked for g in q.rows]).cache()
    try:
        counting = known.where("counts")
        totals = {
            row["type"]: (row["records"], row["promised"])
            for row in counting.groupBy("type")
            .agg(F.countDistinct("range_id").alias("records"), F.sum("promised").alias("promised"))
            .collect()
        }
        surplus = {
            row["type"]: row["surplus"]
            for row in held.join(known, _KEY, "left_anti").groupBy("type").agg(F.sum("held").alias("surplus")).collect()
        }
        unkept = _collect(_unkept(counting, held))
        if unkept:
            unkept = _look_before(spark, storage, database, asked, unkept)
    finally:
        known.unpersist()
        held.unpersist()
    findings: dict[str, list[str]] = {}
    for promise in unkept:
        findings.setdefault(promise.type, []).append(promise.describe(asked[0].frontier.hour.length_s))
    return {
        q.frontier.event_type: Proof(
            "join",
            *totals.get(q.frontier.event_type, (0, 0)),
            surplus.get(q.frontier.event_type, 0),
            _shortened(findings.get(q.frontier.event_type, [])),
        )
        for q in asked
    }


def _promises(spark: SparkSession, storage: Storage, asked: Sequence[_Question], audit_next: int) -> DataFrame:
    """Distinct promises below the cut; `counts` where they are to be kept now."""
    limits = spark.createDataFrame(
        [(q.frontier.event_type, q.frontier.hour.start_s, q.frontier.settled_next) for q in asked],
        "type string, frontier long, settled long",
    )
    wanted = [g for q in asked for g in (*q.promises, *q.explaining)]
    if not wanted:
        return spark.createDataFrame(
            [], "type string, hour long, range_id binary, promised long, promised_sum long, origin string, counts boolean"
        )
    return (
        audit_rows(spark, storage, wanted)
        .where(F.col("offset") < audit_next)
        .join(F.broadcast(limits), "type")
        .withColumn("counts", (F.col("hour") == F.col("frontier")) | (F.col("offset") >= F.col("settled")))
        .groupBy(*_KEY, F.col("count").alias("promised"), F.col("sum").alias("promised_sum"))
        .agg(F.max("counts").alias("counts"), F.first("origin").alias("origin"))
    )


def _held(spark: SparkSession, storage: Storage, groups: Collection[StagedGroup]) -> DataFrame:
    """Distinct ids and the sum of their tails, by (type, hour, range id), of these groups' rows."""
    if not groups:
        return spark.createDataFrame([], "type string, hour long, range_id binary, held long, held_sum long")
    rows = event_rows(spark, storage, groups, ("range_id", "event_id", "tail"))
    distinct = rows.groupBy(*_KEY, "event_id").agg(F.first("tail").alias("tail"))
    return distinct.groupBy(*_KEY).agg(F.count(F.lit(1)).alias("held"), F.sum("tail").alias("held_sum"))


def _unkept(promises: DataFrame, held: DataFrame) -> DataFrame:
    """Promises whose rows are not exactly there. Sums wrap at 64 bits, as the promised ones do."""
    joined = promises.join(held, _KEY, "left")
    kept = (F.col("promised") == F.col("held")) & (F.col("promised_sum") == F.col("held_sum"))
    return joined.where(~F.coalesce(kept, F.lit(False))).select(*_KEY, "promised", "promised_sum", "origin", "held")


def _collect(unkept: DataFrame) -> list[_Unkept]:
    return [_Unkept(*row) for row in unkept.collect()]


def _look_before(
    spark: SparkSession, storage: Storage, database: Database, asked: Sequence[_Question], unkept: Sequence[_Unkept]
) -> list[_Unkept]:
    """What is still not kept when rows that earlier buckets list are counted too."""
    groups: list[StagedGroup] = []
    for q in asked:
        late = {u.hour for u in unkept if u.type == q.frontier.event_type and u.hour < q.frontier.hour.start_s}
        if late:
            groups += ledger.listed_before(database, q.frontier.event_type, q.frontier.hour, late)
            groups += [g for g in q.rows if g.hour_s in late]
    if not groups:
        return list(unkept)
    again = spark.createDataFrame(
        list(unkept), "type string, hour long, range_id binary, promised long, promised_sum long, origin string, held long"
    )
    still = {(u.type, u.hour, bytes(u.range_id)) for u in _collect(_unkept(again.drop("held"), _held(spark, storage, groups)))}
    return [u for u in unkept if (u.type, u.hour, bytes(u.range_id)) in still]


def _shortened(findings: Sequence[str]) -> tuple[str, ...]:
    if len(findings) <= FINDINGS_MAX:
        return tuple(findings)
    return (*findings[:FINDINGS_MAX], f"and {len(findings) - FINDINGS_MAX} more ranges")
