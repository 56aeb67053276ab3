"""The heavy work of closing: comparing audit records, proving many types' frozen hours, writing
many types' sealed hours.

The closer decides; the engine reads staged rows, as units of work that a `Runner` runs: on Spark's
executors, or in this process.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping

from hourmark.config.loading import Config
from hourmark_etl.closing.proof.proof import Proof, Prover
from hourmark_etl.closing.proof.readings import Compared, Comparer
from hourmark_etl.closing.runner import Runner
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.closing.write.writing import SealedHour, WriteLimits, write_hours
from hourmark_etl.ledger.closed import closed_buckets
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import AuditOffsets, Frontier
from hourmark_etl.storage import Storage


@dataclasses.dataclass(frozen=True)
class Engine:
    """What closing asks for; each call is one round for all types given. `runner`: where units of
    work run.
    """

    storage: Storage
    database: Database
    config: Config
    runner: Runner = dataclasses.field(default_factory=Runner)

    def prove(self, frozen: Collection[Frontier], audit_next: AuditOffsets) -> dict[str, Proof]:
        """By type: whether every promise below these central audit offsets is kept by rows listed
        for its hour, or before.
        """
        prover = Prover(
            runner=self.runner,
            storage=self.storage,
            database=self.database,
            unit_bytes_max=self.config.etl.unit_bytes_max,
        )
        return {
            f.event_type: proof
            for f, proof in zip(frozen, prover.prove(list(frozen), audit_next), strict=True)
        }

    def compare(self, without: Collection[str]) -> Compared | None:
        """The next audit files that are to be compared with all others, but for these paths; None
        if there are none.
        """
        return Comparer(self.runner, self.storage, self.database).next(without)

    def write(
        self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str
    ) -> list[WrittenHour]:
        """Containers of all of them in `folder` (schemas: id → Avro JSON).

        Safe to repeat into another folder.
        """
        etl, late = self.config.etl, defaultdict[str, set[int]](set)
        for s in sealed:
            late[s.event_type] |= s.late_hours_s
        closed = closed_buckets(self.database, late, self.config.parsing.bucket_seconds)
        limits = WriteLimits(etl.unit_bytes_max, etl.target_file_bytes, etl.tasks)
        return write_hours(self.runner, self.storage, sealed, closed, schemas, folder, limits)
