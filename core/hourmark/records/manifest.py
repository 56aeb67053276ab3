"""The manifest of a closed bucket: the content of its marker file `_SUCCESS`, as JSON.

The marker's presence means that the bucket is complete and final. Readers use the files that it
lists and ignore all others in the folder. Its field `software` ends with a digest of the whole
marker, so a reader detects a damaged one. Markers before 0.3.0 have no digest of their own, but the
marker of the following hour contains it.
"""

from __future__ import annotations

import enum
from typing import Final, Literal

from pydantic import Field, ValidationError

from hourmark.config.groups import AvroCodec, FrozenModel, Positive
from hourmark.records.self_digest import (
    SOFTWARE_CHARS_MAX,
    add_own_digest,
    check_own_digest,
    compute_record_digest,
)

MARKER: Final = "_SUCCESS"
PARQUET_FOLDER: Final = "_parquet"  # readers of a folder skip names that begin with _
FORMAT: Final = 1


class Grade(enum.Enum):
    """The strength of the evidence that a closed bucket is complete.

    Attributes:
        PROVED: The bucket contains all events that delivery services counted in audit records.
        TIMED_OUT: The bucket was closed after a deadline. Its manifest lists the missing evidence.
        FORCED: An operator closed the bucket. Its manifest lists the missing evidence.
    """

    PROVED = "proved"  # all promises up to the cut are met
    TIMED_OUT = "timed_out"  # closed after the deadline; what was waived is listed
    FORCED = "forced"  # closed by an operator; what was waived is listed


class BucketFile(FrozenModel):
    """An Avro container file in the folder of a closed bucket.

    Attributes:
        name: File name within the bucket's folder.
        records: Number of records.
        bytes: Size of the file.
        blake2b: BLAKE2b digest of the file (16 bytes) in hex.
        schema_id: Id of the writer schema in the registry.
        schema_fingerprint: Fingerprint of the writer schema.
        origin_hour: If set, all events of the file have times in this hour, which `hourmark bucket
            verify` checks. The ETL does not set it: a file of late events may have several hours.
    """

    name: str
    records: Positive
    bytes: Positive
    blake2b: str
    schema_id: int
    schema_fingerprint: str
    origin_hour: str | None = None


class ParquetFile(FrozenModel):
    """A Parquet file of a closed bucket. Its events are also in an Avro file of the bucket.

    Attributes:
        name: Path within the bucket's folder, such as `_parquet/part-00000.parquet`.
        rows_of: Name of the Avro file that contains the same events. The Parquet files of one Avro
            file contain its events in the same order.
        records: Number of records.
        bytes: Size of the file.
        blake2b: BLAKE2b digest of the file (16 bytes) in hex.
        origin_hour: Hour that contains the times of all events in the file.
    """

    name: str
    rows_of: str
    records: Positive
    bytes: Positive
    blake2b: str
    origin_hour: str


class PreviousMarker(FrozenModel):
    """A reference to the `_SUCCESS` file (marker) of a type's previous bucket, with its digest.

    The references form a chain. If a bucket is later changed, added or removed, the chain breaks.

    Attributes:
        hour: Hour of the previous bucket.
        blake2b: BLAKE2b digest of the previous `_SUCCESS` file (16 bytes) in hex.
    """

    hour: str
    blake2b: str

    @classmethod
    def from_marker(cls, hour: str, marker: bytes) -> PreviousMarker:
        """Create a reference to the marker file of a bucket.

        Args:
            hour: Hour of the bucket, such as `2026-11-21T05`.
            marker: Content of the bucket's `_SUCCESS` file.
        """
        return cls(hour=hour, blake2b=compute_record_digest(marker))


class BucketOffset(FrozenModel):
    """The end offset of a bucket in a topic-partition.

    Each record below the offset is in this bucket or an earlier one, or was excluded from all
    buckets because it is not a valid event.

    Attributes:
        topic: Name of the topic on the central cluster.
        topic_id: Kafka's id of the topic, which changes when the topic is recreated.
        partition: Partition number.
        next: Offset of the first record that belongs to a later bucket.
    """

    topic: str
    topic_id: str
    partition: int
    next: int


class BucketEvidence(FrozenModel):
    """The evidence that a bucket contains all events that delivery services counted for it.

    For each byte range of input, a delivery service writes an audit record with the number of
    events by event type and hour. Before a bucket is closed, its events are compared with the audit
    records.

    Attributes:
        method: How events were compared with audit records. `sums`: by counts and sums of ids.
            `join`: by the distinct ids of each byte range. `empty`: no events were expected.
        cut_at_ms: Time at which the end offsets of the compared records were determined, in Unix
            milliseconds on the clock of the closing process.
        audit_records: Number of audit records that were compared.
        promised: Number of distinct ids in these audit records, for hours up to the bucket's hour.
        audit_next: Maps each partition of the audit topic on the central cluster to the next offset
            to read. Earlier audit records were read.
        waived: Descriptions of the evidence that was missing when the bucket was closed. Empty if
            nothing was missing.
    """

    method: str
    cut_at_ms: int
    audit_records: int
    promised: int
    audit_next: dict[str, int]
    waived: list[str] = Field([])


class HourTotals(FrozenModel):
    """The record counts of one origin hour in a bucket.

    The origin hour of an event is the hour of its event time. A bucket also contains late events of
    earlier hours. For each byte range of input, a delivery service writes an audit record with the
    number of events by event type and hour. The bucket was compared with these audit records.

    Attributes:
        rows: Number of events of the hour that the ETL had read from Kafka for the bucket,
            including duplicates.
        events: Number of events of the hour in this bucket.
        promised: Number of distinct event ids of the hour according to the audit records.
        unaudited: Number of events of the hour in this bucket that were not yet counted in any
            audit record.
    """

    rows: int
    events: int
    promised: int
    unaudited: int


class SetAsideRecords(FrozenModel):
    """Kafka records of one partition that are excluded from all buckets for the same reason.

    Attributes:
        topic: Name of the topic.
        partition: Partition number.
        reason: Human-readable reason for the exclusion.
        records: Number of excluded records.
        first_offset: Offset of the first excluded record.
        last_offset: Offset of the last excluded record. Records between the two offsets may be
            valid.
    """

    topic: str
    partition: int
    reason: str
    records: int
    first_offset: int
    last_offset: int


class MissingRanges(FrozenModel):
    """The byte ranges of log files whose events may be missing from a bucket.

    A byte range is the part of a file that a tailer sends in one request. The missing events may
    belong to this bucket or to an earlier bucket of the type. A range is also listed if its audit
    records contradict each other, so that buckets may contain two versions of its events.

    Attributes:
        ranges: Ids of the ranges, 16 hex digits each; empty if no id is known.
        more: Whether further ranges are affected whose ids are not known.
    """

    ranges: list[str] = Field([])
    more: bool = False


# Fields that are omitted if they are empty. Version 0.2.0 knows none of them, 0.3.0 only the first
# three.
_LATER: Final = (
    "lost",
    "unknown",
    "unrepeatable",
    "checked",
    "set_aside",
    "set_aside_records",
    "left_out",
    "lacks",
    "codec",
    "parquet",
)


class Manifest(FrozenModel):
    """The manifest of a closed bucket: its files, its counts, and the evidence of completeness.

    The manifest is stored in the bucket's `_SUCCESS` file, which is called its marker. The origin
    hour of an event is the hour of its event time. A late event is stored in a bucket after its
    origin hour. For each byte range of input, a delivery service writes an audit record with the
    number of events by type and hour.

    Attributes:
        format: Version of the format.
        type: Name of the event type.
        hour: Hour of the bucket.
        bucket_seconds: Length of the bucket.
        previous: Reference to the marker of the previous hour; null for the type's first bucket.
        grade: Strength of the evidence that the bucket is complete.
        evidence: The evidence for the grade.
        codec: Codec of all files. Absent if it is `zstandard`, and if there are no files.
        files: Files of the bucket.
        events: Number of records in all files.
        late: Maps each origin hour to its number of late records.
        books: Maps each origin hour, including the bucket's hour, to its record counts.
        duplicates_removed: Number of duplicate rows that were dropped.
        unaudited: Number of records that are not yet counted in any audit record.
        checked: Number of events whose values were verified by the checksum of an audit record.
            Absent if 0, and before 0.4.0.
        set_aside: Number of records that were read since the previous bucket and are excluded from
            all buckets, because they are not valid events. Absent if 0.
        set_aside_records: The largest groups of such records, at most 50.
        left_out: Number of rows that the ETL had read from Kafka but could not write. An operator
            closed the bucket without them. Absent if 0.
        lacks: Byte ranges whose events may be missing. Absent if the grade is `proved`, and before
            0.4.0.
        lost: Maps each source to the number of bytes that were lost before they were read, and that
            may have belonged to this hour.
        unknown: Maps each source to the number of incidents that may have caused an additional loss
            of unknown size.
        unrepeatable: Sources that receive data from senders that cannot resend it. For these
            sources, the grade covers only data that reached a host's disk.
        parquet: Parquet files with the same events as `files`. Absent if there are none, and before
            0.4.0.
        id_sum: Sum of the last 8 bytes of all ids, modulo 2^64, in hex.
        offsets: The end offset of the bucket in each partition.
        ledger: UUID of the ledger (the database of the ETL).
        ledger_commit: Number of the last commit to the ledger before the bucket was published.
        attempt: Id of the closing attempt that wrote the files.
        closed_at_ms: Closing time, in Unix milliseconds on the clock of the closing process.
        software: Version of the software that wrote the bucket, then ` blake2b=` and the hex digest
            (16 bytes) of this marker. The digest is computed with 32 zeros in its place.
    """

    format: int = FORMAT
    type: str
    hour: str
    bucket_seconds: int
    previous: PreviousMarker | None = None
    grade: Grade
    evidence: BucketEvidence
    codec: Literal["deflate"] | None = None
    files: list[BucketFile]
    events: int
    late: dict[str, int]
    books: dict[str, HourTotals] = Field({})
    duplicates_removed: int
    unaudited: int
    checked: int = 0
    set_aside: int = 0
    set_aside_records: list[SetAsideRecords] = Field([])
    left_out: int = 0
    lacks: MissingRanges | None = None
    lost: dict[str, int] = Field({})
    unknown: dict[str, int] = Field({})
    unrepeatable: list[str] = Field([])
    parquet: list[ParquetFile] = Field([])
    id_sum: str
    offsets: list[BucketOffset]
    ledger: str
    ledger_commit: int
    attempt: str
    closed_at_ms: int
    software: str

    @property
    def files_codec(self) -> AvroCodec | None:
        """Return the codec of the bucket's files, or None if the bucket has no files."""
        return (self.codec or "zstandard") if self.files else None

    @property
    def all_files(self) -> tuple[BucketFile | ParquetFile, ...]:
        """Return the Avro files and then the Parquet files; empty if the bucket has no events."""
        return (*self.files, *self.parquet)

    def with_own_digest(self) -> Manifest:
        """Return a copy of the manifest with a digest of its content.

        Call this method once, after all other fields are set. The digest is appended to the field
        `software`, and `decode` verifies it.
        """
        return add_own_digest(self)

    def encode(self) -> bytes:
        """Return the manifest as indented JSON, the content of a bucket's `_SUCCESS` file.

        Fields added after version 0.2.0 are omitted if they are empty, because older readers reject
        unknown fields.
        """
        return self.model_dump_json(
            indent=1, exclude={name for name in _LATER if not getattr(self, name)}
        ).encode()

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """Parse the content of a bucket's `_SUCCESS` file, and verify its digest.

        Args:
            content: The bytes of the file. Manifests before version 0.3.0 have no digest.

        Raises:
            ValueError: The content is not a manifest, or does not match its digest. In the second
                case, the file was changed after it was written; restore it from a copy.
        """
        try:
            decoded = cls.model_validate_json(content)
        except ValidationError as error:
            raise ValueError(f"not a manifest: {error}") from error
        if len(decoded.software) > SOFTWARE_CHARS_MAX:
            check_own_digest(content)
        return decoded
