"""The marker of a closed bucket (`_SUCCESS`), implemented independently from the documentation.

Validation is strict: unknown keys, missing keys and values of other types are errors.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]


class _MarkerModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MarkerFile(_MarkerModel):
    """One Avro file of a bucket, as listed in the bucket's marker (the `_SUCCESS` file).

    Attributes:
        name: Name of the file in the bucket folder.
        records: Number of events in the file, at least 1.
        bytes: Size of the file in bytes.
        blake2b: BLAKE2b-128 digest of the file, in hexadecimal.
        schema_id: Id of the Avro schema in the schema registry.
        schema_fingerprint: BLAKE2b-64 digest of the schema, 16 hexadecimal digits.
        origin_hour: Must be null; any other value makes the marker invalid.
    """

    name: str
    records: int = Field(ge=1)
    bytes: int = Field(ge=1)
    blake2b: str
    schema_id: int
    schema_fingerprint: str
    origin_hour: None


class MarkerParquetFile(_MarkerModel):
    """One Parquet file of a bucket, which repeats events of an Avro file.

    Attributes:
        name: Path of the file below the bucket folder, such as `_parquet/part-00000.parquet`.
        rows_of: Name of the Avro file.
        records: Number of events in the file, at least 1.
        bytes: Size of the file in bytes.
        blake2b: BLAKE2b-128 digest of the file, in hexadecimal.
        origin_hour: Label of the interval that contains the times of all events in the file.
    """

    name: str
    rows_of: str
    records: int = Field(ge=1)
    bytes: int = Field(ge=1)
    blake2b: str
    origin_hour: str


class PartitionOffset(_MarkerModel):
    """The position in a Kafka partition at which a bucket ends.

    Attributes:
        topic: Name of the topic.
        topic_id: Kafka's id of the topic. It changes if the topic is deleted and created again.
        partition: Partition number.
        next: First offset that belongs neither to this bucket nor to an earlier one.
    """

    topic: str = Field(min_length=1)
    topic_id: str = Field(min_length=1)
    partition: Count
    next: Count


class MarkerEvidence(_MarkerModel):
    """The evidence that a bucket is complete, as recorded in its marker (the `_SUCCESS` file).

    A delivery service writes an audit record for each byte range of a log file. The record states
    how many events of the range it acknowledged; these events are called promised. To prove that a
    bucket is complete, promised events are compared with the events in Kafka.

    Attributes:
        method: How promised events and events in Kafka were compared: `sums` (by counts and sums of
            event ids), `join` (by the event ids of each byte range) or `empty` (no event was
            promised).
        cut_at_ms: Time in Unix milliseconds at which the end offsets in Kafka were determined.
            Records after these offsets were not taken into account.
        audit_records: Number of audit records that were compared.
        promised: Number of promised events in these audit records.
        audit_next: Next offset to read from the audit topic, by partition.
        waived: Descriptions of the conditions that were not met; empty if the grade is `proved`.
    """

    method: Literal["sums", "join", "empty"]
    cut_at_ms: int
    audit_records: Count
    promised: Count
    audit_next: dict[str, Count] = Field(min_length=1)
    waived: list[str]


class EventHourCounts(_MarkerModel):
    """The number of a bucket's records and events whose event time is in one particular hour.

    Besides the events of its own hour, a bucket can contain late events of earlier hours. Its
    marker (the `_SUCCESS` file) contains one object of this class for each of these hours.

    Attributes:
        rows: Records read from Kafka, including duplicates.
        events: Events that remain after duplicates were removed.
        promised: Events that a delivery service acknowledged, according to its audit records.
        unaudited: Events that no audit record includes.
    """

    rows: Count
    events: Count
    promised: Count
    unaudited: Count


class MarkerLink(_MarkerModel):
    """A marker's reference to the marker of the preceding bucket of the same event type.

    Attributes:
        hour: Label of the preceding bucket.
        blake2b: BLAKE2b-128 digest of the preceding `_SUCCESS` file, in hexadecimal.
    """

    hour: str
    blake2b: str


class OmittedRecords(_MarkerModel):
    """Kafka records of one partition that are in no bucket for the same reason.

    Attributes:
        topic: Name of the topic.
        partition: Partition number.
        reason: Why the records are in no bucket.
        records: Number of these records.
        first_offset: Offset of the first one.
        last_offset: Offset of the last one.
    """

    topic: str
    partition: Count
    reason: str
    records: Count
    first_offset: Count
    last_offset: Count


class PossiblyMissingRanges(_MarkerModel):
    """The byte ranges of log files whose events may be missing from a bucket.

    Attributes:
        ranges: Ids of these ranges in hexadecimal; may be empty.
        more: Whether events of further ranges, whose ids are unknown, may be missing.
    """

    ranges: list[str] = Field([])
    more: bool = False


class Marker(_MarkerModel):
    """The content of a bucket's `_SUCCESS` file: the files of the bucket, its counts and its grade.

    Validation is strict: a missing key, an unknown key or a value of another type raises
    `ValidationError`.

    Attributes:
        format: Version of the format.
        type: Event type.
        hour: Label of the bucket's interval, such as 2026-11-21T05.
        bucket_seconds: Length of the interval in seconds.
        previous: Reference to the preceding bucket; None for the first bucket of the type.
        grade: Why the bucket was closed: `proved` (verified to be complete), `timed_out` (a
            deadline passed) or `forced` (an operator decided so).
        evidence: The evidence for the grade.
        codec: Avro codec of all files; None if they have `zstandard`, or if there are no files.
        files: Avro files of the bucket.
        events: Number of events in all files.
        late: Number of late events, by the hour of their event time.
        books: Counts by hour of the event time, including the hour of the bucket itself.
        duplicates_removed: Number of duplicates that were removed.
        unaudited: Number of events that no audit record includes.
        checked: Number of audited events whose values were verified by a checksum.
        set_aside: Number of Kafka records that are in no bucket, as they are not valid events.
        set_aside_records: The largest groups of these records.
        left_out: Number of rows that could not be written and were left out by an operator's order.
        lacks: Byte ranges whose events may be missing; None if the grade is `proved`.
        lost: Number of bytes that were destroyed before they were read, by source.
        unknown: Number of losses of unknown size, by source.
        unrepeatable: Sources whose senders cannot send data again.
        parquet: Parquet files of the bucket; empty if it has Avro files only.
        id_sum: Sum of the low 64 bits of all event ids, modulo 2**64, 16 hexadecimal digits.
        offsets: Offsets in the Kafka partitions of the type, up to which records are in this bucket
            or an earlier one.
        ledger: Id of the ledger (the database of the ETL).
        ledger_commit: Value of the ledger's commit counter, which never decreases in a ledger.
        attempt: Id of the successful attempt to write the bucket.
        closed_at_ms: Time of closing in Unix milliseconds.
        software: Version of the software, followed by a digest of this marker.
    """

    format: Literal[1]
    type: str
    hour: str
    bucket_seconds: int = Field(ge=60, le=3600, multiple_of=60)
    previous: MarkerLink | None
    grade: Literal["proved", "timed_out", "forced"]
    evidence: MarkerEvidence
    files: list[MarkerFile]
    events: Count
    late: dict[str, int]
    books: dict[str, EventHourCounts]
    duplicates_removed: Count
    unaudited: Count
    # keys that are absent in older markers and if their value is empty
    codec: Literal["deflate"] | None = None
    checked: Count = 0
    set_aside: Count = 0
    set_aside_records: list[OmittedRecords] = Field([])
    left_out: Count = 0
    lacks: PossiblyMissingRanges | None = None
    lost: dict[str, Count] = Field({})
    unknown: dict[str, Count] = Field({})
    unrepeatable: list[str] = Field([])
    parquet: list[MarkerParquetFile] = Field([])
    id_sum: str = Field(pattern=r"^[0-9a-f]{16}$")
    offsets: list[PartitionOffset]
    ledger: str = Field(min_length=1)
    ledger_commit: Count
    attempt: str = Field(min_length=1)
    closed_at_ms: int
    software: str = Field(min_length=1)


def has_valid_self_digest(written: bytes, software: str) -> bool:
    """Return whether a `_SUCCESS` file matches the digest that it contains.

    The digest is the last part of the field `software`. It is computed over the file with the
    digest replaced by zeros. A `software` value of at most 40 characters contains no digest; the
    result is then True.

    Args:
        written: Content of the `_SUCCESS` file.
        software: Value of the field `software`.
    """
    if len(software) <= 40:
        return True
    *before, tail = re.split(rb" blake2b=(?=[0-9a-f]{32}\")", written)
    blank = b" blake2b=".join([*before, b"0" * 32 + tail[32:]])
    return bool(before) and hashlib.blake2b(blank, digest_size=16).hexdigest().encode() == tail[:32]
