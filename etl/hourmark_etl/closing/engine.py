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
    """Runs the expensive steps of closing: proving, comparing and writing hours.

    Each method processes all given event types together, split into tasks of limited size.

    Attributes:
        storage: Storage with staged files and buckets.
        database: Database of the ledger.
        config: The complete configuration.
        runner: Executes the tasks; by default in this process.
    """

    storage: Storage
    database: Database
    config: Config
    runner: Runner = dataclasses.field(default_factory=Runner)

    def prove(self, frozen: Collection[Frontier], audit_next: AuditOffsets) -> dict[str, Proof]:
        """Check whether the staged rows of hours contain every event that audit records promise.

        An audit record states how many events a byte range of a log file contains for each type and
        hour. Missing events are not an error; they are listed in the proof.

        Args:
            frozen: The hours to prove, one per event type. Their rows are already fixed in the
                ledger.
            audit_next: Audit records below these offsets are checked.

        Returns:
            A proof by event type. Its `findings` are empty if all events exist.

        Raises:
            Unreadable: A staged file is missing or damaged. Stage it again and repeat the call.
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
        """Compare the next new audit files with all others, to find contradictory audit records.

        Two audit records contradict each other if they describe the same byte range differently.

        Args:
            skip_paths: Paths of audit files to skip.

        Returns:
            The compared files and the differences; None if all files have been compared.

        Raises:
            Unreadable: An audit file is missing or damaged. Stage it again and repeat the call.
        """
        return AuditComparer(self.runner, self.storage, self.database).compare_next(skip_paths)

    def write(
        self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str
    ) -> list[WrittenHour]:
        """Write the Avro container files of sealed hours, without duplicate events.

        The files are not published by this method. After an error, repeat the call with another
        folder.

        Args:
            sealed: The hours and the staged rows that belong to them.
            schemas: Avro schemas as JSON, by schema id.
            folder: Path of a new folder for the files.

        Returns:
            The files of each hour, in the order of `sealed`.

        Raises:
            Unreadable: A staged file is missing or damaged. Stage it again and repeat the call.
        """
        etl, late = self.config.etl, defaultdict[str, set[int]](set)
        for s in sealed:
            late[s.event_type] |= s.late_hours_s
        closed = closed_buckets(self.database, late, self.config.parsing.bucket_seconds)
        limits = WriteLimits(etl.unit_bytes_max, etl.target_file_bytes, etl.tasks)
        return write_hours(self.runner, self.storage, sealed, closed, schemas, folder, limits)
