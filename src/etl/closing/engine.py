"""The heavy work of closing behind one port: proving many types' frozen hours, and writing many types' sealed hours.

The closer decides; an engine reads staged rows: `SparkEngine` on a cluster, `LocalEngine` in this process, by the same work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Protocol

from pyspark.sql import SparkSession

from etl.closing.containers import WrittenHour
from etl.closing.proof import Proof, Prover
from etl.closing.runner import InProcess, OnSpark, Runner
from etl.closing.writing import SealedHour, write_on
from etl.ledger.database import Database
from etl.ledger.rows import Frontier
from etl.storage import Storage
from hourmark.config import Config


class Engine(Protocol):
    """What closing asks for; each call is one round for all types given."""

    def prove(self, frozen: Collection[Frontier], audit_next: int) -> dict[str, Proof]:
        """By type: whether every promise below this central audit offset is kept by rows listed for its hour, or before."""
        ...

    def write(self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str) -> list[WrittenHour]:
        """Containers of all of them in `folder` (schemas: id → Avro JSON). Safe to repeat into another folder."""
        ...


@dataclasses.dataclass(frozen=True)
class SparkEngine:
    """One Spark job a round."""

    spark: SparkSession
    storage: Storage
    database: Database
    config: Config

    def prove(self, frozen: Collection[Frontier], audit_next: int) -> dict[str, Proof]:
        """See `Engine`."""
        return _by_type(OnSpark(self.spark), self, frozen, audit_next)

    def write(self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str) -> list[WrittenHour]:
        """See `Engine`."""
        return write_on(OnSpark(self.spark), self.storage, self.database, self.config, sealed, schemas, folder)


@dataclasses.dataclass(frozen=True)
class LocalEngine:
    """The same work in this process, without Spark."""

    storage: Storage
    database: Database
    config: Config

    def prove(self, frozen: Collection[Frontier], audit_next: int) -> dict[str, Proof]:
        """See `Engine`."""
        return _by_type(InProcess(), self, frozen, audit_next)

    def write(self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str) -> list[WrittenHour]:
        """See `Engine`."""
        return write_on(InProcess(), self.storage, self.database, self.config, sealed, schemas, folder)


def _by_type(
    runner: Runner, engine: SparkEngine | LocalEngine, frozen: Collection[Frontier], audit_next: int
) -> dict[str, Proof]:
    """One frontier of a type."""
    asked = list(frozen)
    proofs = Prover(runner, engine.storage, engine.database, engine.config.etl.unit_bytes_max).prove(asked, audit_next)
    return {f.event_type: proof for f, proof in zip(asked, proofs, strict=True)}
