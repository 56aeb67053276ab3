"""The expensive work of closing: comparing audit records, proving hours and writing hours.

The closer decides what to do. The engine reads staged rows as units of work that a `Runner`
executes on Spark's executors or in this process.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from hourmark.config.groups import AvroCodec, BucketFormat
from hourmark.config.loading import Config
from hourmark.records.hours import Hour
from hourmark_etl.closing.proof.proof import Proof, Prover
from hourmark_etl.closing.proof.readings import AuditComparer, AuditComparison
from hourmark_etl.closing.runner import Runner
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.closing.write.writing import SealedHour, WriteLimits, write_hours
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ids.removed_buckets import separate_removed
from hourmark_etl.ledger.closed import ClosedBucket, closed_buckets
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.rules import read_bucket_formats
from hourmark_etl.model import AuditOffsets, Frontier
from hourmark_etl.storage import Storage

_LOG: Final = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Engine:
    """Runs the expensive steps of closing hourly buckets: verification, comparison and writing.

    Each method splits its work for all given event types into tasks of limited size.

    Attributes:
        storage: Storage with buckets and staged files (copies of Kafka records).
        database: Database of the ledger.
        config: The complete configuration.
        runner: Executes the tasks; by default in this process.
    """

    storage: Storage
    database: Database
    config: Config
    runner: Runner = dataclasses.field(default_factory=Runner)

    def prove(self, frozen: Collection[Frontier], audit_next: AuditOffsets) -> dict[str, Proof]:
        """Verify that hourly buckets contain every event that audit records report.

        An audit record states how many events a byte range of a log file contains for each type and
        hour. It is compared with the staged rows (events copied from Kafka) of the bucket. Missing
        events do not raise an exception; they are listed in the proof.

        Args:
            frozen: The hours of the buckets, one per event type. The ledger has already assigned
                rows to these buckets, and no more rows are added.
            audit_next: End offsets (exclusive) of the audit records to check, by site.

        Returns:
            Proof by event type. Its `findings` are empty if no event is missing.

        Raises:
            Unreadable: A staged file is missing or damaged. Stage it again and repeat the call.
        """
        proofs = self._prover.prove(list(frozen), audit_next)
        return {f.event_type: proof for f, proof in zip(frozen, proofs, strict=True)}

    def prove_by_sums(
        self, frozen: Sequence[Frontier], audit_next: AuditOffsets
    ) -> list[Proof | None]:
        """Verify hourly buckets by comparing totals in the ledger, without reading their rows.

        Args:
            frozen: The hours of the buckets; several hours of a type are allowed. The ledger has
                already assigned rows to these buckets, and no more rows are added.
            audit_next: End offsets (exclusive) of the audit records to check, by site.

        Returns:
            One proof per bucket, in the order of `frozen`; None if totals do not decide, and `prove`
            must compare each byte range.

        Raises:
            Unreadable: A staged file is missing or damaged. Stage it again and repeat the call.
        """
        return self._prover.prove_by_sums(frozen, audit_next)

    @property
    def _prover(self) -> Prover:
        return Prover(
            runner=self.runner,
            storage=self.storage,
            database=self.database,
            unit_bytes_max=self.config.etl.unit_bytes_max,
        )

    def compare(self, skip_paths: Collection[str]) -> AuditComparison | None:
        """Compare new audit files with all others to find contradictory audit records.

        An audit record states how many events a byte range of a log file contains. Two records
        contradict each other if they describe the same byte range differently. Each call compares a
        limited number of files. Record them as compared, and repeat the call until it returns None.

        Args:
            skip_paths: Paths of audit files to skip.

        Returns:
            The compared files and the differences; None if all files have been compared.

        Raises:
            Unreadable: An audit file is missing or damaged. Stage it again and repeat the call.
        """
        return AuditComparer(self.runner, self.storage, self.database).compare_next(skip_paths)

    def write(
        self,
        sealed: Collection[SealedHour],
        schemas: Mapping[int, str],
        folder: str,
        codec: AvroCodec,
    ) -> list[WrittenHour]:
        """Write the files of hourly buckets, without duplicate events.

        All buckets have Avro files. Those of types with the format `avro+parquet` also have Parquet
        files. The files are written to a temporary folder and published in a later step. After an
        error, repeat the call with a different folder.

        Args:
            sealed: The buckets, whose content is fixed, with their staged rows (events copied from
                Kafka).
            schemas: Avro schemas as JSON, by schema id.
            folder: Path of the new folder.
            codec: Codec of the files.

        Returns:
            The files of each bucket, in the order of `sealed`. If the ledger row with the format of
            a type is damaged, the `publish_error` of its buckets states this.

        Raises:
            Unreadable: A staged file is missing or damaged. Stage it again and repeat the call.
        """
        etl, late = self.config.etl, defaultdict[str, set[int]](set)
        for s in sealed:
            late[s.event_type] |= s.late_hours_s
        length_s = self.config.parsing.bucket_seconds
        closed = {
            name: self._searchable(of)
            for name, of in closed_buckets(self.database, late, length_s).items()
        }
        limits = WriteLimits(etl.unit_bytes_max, etl.target_file_bytes, etl.tasks, codec)
        formats = read_bucket_formats(
            self.database, {s.event_type for s in sealed}, etl.bucket_format
        )
        with_parquet = {name for name, of in formats.items() if of == "avro+parquet"}
        written = write_hours(
            self.runner, self.storage, sealed, closed, schemas, folder, limits, with_parquet
        )
        return [_with_format_error(of, formats[of.event_type]) for of in written]

    def _searchable(self, buckets: Sequence[ClosedBucket]) -> tuple[ClosedBucket, ...]:
        # Late events of removed buckets are kept, and cannot be compared with them.
        found = separate_removed(self.storage, buckets, self.config.parsing.bucket_seconds)
        for bucket in found.removed:
            _LOG.warning(
                "late events are not compared with a bucket that was removed by retention: type=%s "
                "hour=%s",
                bucket.event_type,
                Hour(bucket.hour_s, self.config.parsing.bucket_seconds),
            )
        return found.searchable


def _with_format_error(
    written: WrittenHour, bucket_format: BucketFormat | DamagedRow
) -> WrittenHour:
    if not isinstance(bucket_format, DamagedRow):
        return written
    errors = filter(None, (str(bucket_format), written.publish_error))
    return dataclasses.replace(written, publish_error="; ".join(errors))
