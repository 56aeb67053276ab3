"""The heavy work of closing behind one port: comparing audit records, proving many types' frozen hours, and
writing many types' sealed hours.

The closer decides; an engine reads staged rows: `SparkEngine` on a cluster, `LocalEngine` in this process, by the same work.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Protocol

from pyspark.sql import SparkSession

from etl.closing.comparing import Compared, Comparer
from etl.closing.containers import WrittenHour
from etl.closing.proof import Proof, Prover
from etl.closing.runner import OnSpark, Runner
from etl.closing.writing import SealedHour, WriteLimits, write_hours
from etl.ledger.closed import closed_buckets
from etl.ledger.database import Database
from etl.ledger.rows import Frontier
from etl.storage import Storage
from hourmark.config import Config


class Engine(Protocol):
    """What closing asks for; each call is one round for all types given."""

    def prove(self, frozen: Collection[Frontier], audit_next: int) -> dict[str, Proof]:
        """By type: whether every promise below this central audit offset is kept by rows listed for its hour, or before."""

    def compare(self, without: Collection[str]) -> Compared | None:
        """The next audit files that are to be compared with all others, but for these paths; None if there are none."""

    def write(self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str) -> list[WrittenHour]:
        """Containers of all of them in `folder` (schemas: id → Avro JSON). Safe to repeat into another folder."""


@dataclasses.dataclass(frozen=True)
class LocalEngine:
    """In this process, without Spark."""

    storage: Storage
    database: Database
    config: Config

    @property
    def runner(self) -> Runner:
        """Where units of work run."""
        return Runner()

    def prove(self, frozen: Collection[Frontier], audit_next: int) -> dict[str, Proof]:
        """See `Engine`."""
        asked = list(frozen)
        proofs = Prover(self.runner, self.storage, self.database, self.config.etl.unit_bytes_max).prove(asked, audit_next)
        return {f.event_type: proof for f, proof in zip(asked, proofs, strict=True)}

    def compare(self, without: Collection[str]) -> Compared | None:
        """See `Engine`."""
        return Comparer(self.runner, self.storage, self.database).next(without)

    def write(self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str) -> list[WrittenHour]:
        """See `Engine`."""
        etl, late = self.config.etl, defaultdict[str, set[int]](set)
        for s in sealed:
            late[s.event_type] |= s.late_hours_s
        closed = closed_buckets(self.database, late, self.config.parsing.bucket_seconds)
        limits = WriteLimits(etl.unit_bytes_max, etl.target_file_bytes, etl.tasks)
        return write_hours(self.runner, self.storage, sealed, closed, schemas, folder, limits)


@dataclasses.dataclass(frozen=True)
class SparkEngine(LocalEngine):
    """The same work, one Spark job a round."""

    spark: SparkSession

    @property
    def runner(self) -> Runner:
        """Spark's executors."""
        return OnSpark(self.spark)
