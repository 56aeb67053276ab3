"""The expensive work of closing: comparing audit records, proving hours and writing hours.

The closer decides what to do. The engine reads staged rows as units of work that a `Runner`
executes on Spark's executors or in this process.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping

from hourmark.config.loading import Config
from hourmark_etl.closing.proof.proof import Proof, Prover
from hourmark_etl.closing.proof.readings import AuditComparer, AuditComparison
from hourmark_etl.closing.runner import Runner
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.closing.write.writing import SealedHour, WriteLimits, write_hours
from hourmark_etl.ledger.closed import closed_buckets
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import AuditOffsets, Frontier
from hourmark_etl.storage import Storage


@dataclasses.dataclass(frozen=True)
class Engine:
    """Runs the expensive steps of closing, each for all given event types at once.

    Attributes:
        storage: Storage with staged files and buckets.
        database: The ledger.
        config: The complete configuration.
        runner: Executes units of work; by default in this process.
    """

    storage: Storage
    database: Database
    config: Config
    runner: Runner = dataclasses.field(default_factory=Runner)

    def prove(self, frozen: Collection[Frontier], audit_next: AuditOffsets) -> dict[str, Proof]:
        """Check whether the staged rows of hours contain every event that audit records promise.

        Args:
            frozen: Frontiers whose rows are fixed (listed in the ledger).
            audit_next: The audit records to check: those below these offsets.

        Returns:
            A proof by event type; it has findings if events are missing.

        Raises:
            Unreadable: A staged file must be staged again first.
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

    def compare(self, skip_paths: Collection[str]) -> AuditComparison | None:
        """Compare the next new audit files with all others, to find ranges with differing records.

        Args:
            skip_paths: Paths of audit files to skip.

        Returns:
            The compared files and their differences; None if no file is left to compare.

        Raises:
            Unreadable: An audit file must be staged again first.
        """
        return AuditComparer(self.runner, self.storage, self.database).compare_next(skip_paths)

    def write(
        self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str
    ) -> list[WrittenHour]:
        """Write container files for sealed hours.

        A failed call can be repeated with another folder.

        Args:
            sealed: The hours and their listed rows.
            schemas: Avro schemas as JSON by schema id.
            folder: Path of a new folder for the files.

        Returns:
            What was written, in the order of `sealed`.

        Raises:
            Unreadable: A staged file must be staged again first.
        """
        etl, late = self.config.etl, defaultdict[str, set[int]](set)
        for s in sealed:
            late[s.event_type] |= s.late_hours_s
        closed = closed_buckets(self.database, late, self.config.parsing.bucket_seconds)
        limits = WriteLimits(etl.unit_bytes_max, etl.target_file_bytes, etl.tasks)
        return write_hours(self.runner, self.storage, sealed, closed, schemas, folder, limits)
