"""The marker of a closed bucket (`_SUCCESS`), implemented independently from the documentation.

Validation is strict: unknown keys, missing keys and other types are errors.
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
    """One Avro file of a bucket, as listed in the bucket's marker.

    Attributes:
        name: file name in the bucket folder.
        records: number of events.
        bytes: size.
        blake2b: BLAKE2b-128 digest in hexadecimal.
        schema_id: id of the Avro schema in the schema registry.
        schema_fingerprint: 16 hexadecimal digits of the schema's digest.
        origin_hour: always null.
    """

    name: str
    records: int = Field(ge=1)
    bytes: int = Field(ge=1)
    blake2b: str
    schema_id: int
    schema_fingerprint: str
    origin_hour: None


class PartitionOffset(_MarkerModel):
    """The position in a Kafka partition up to which records are in this or an earlier bucket.

    Attributes:
        topic: topic name.
        topic_id: Kafka's id of the topic, which differs after the topic was recreated.
        partition: partition number.
        next: next offset to read.
    """

    topic: str = Field(min_length=1)
    topic_id: str = Field(min_length=1)
    partition: Count
    next: Count


class MarkerEvidence(_MarkerModel):
    """The evidence for the grade of a bucket, as recorded in its marker.

    Attributes:
        method: proof by sums, by a join of ids, or of an empty bucket.
        cut_at_ms: time of the cut in Unix milliseconds.
        audit_records: number of audit records that were compared.
        promised: number of events that the audit records promise.
        audit_next: next audit offset to read, by partition.
        waived: descriptions of all conditions that were not met; empty for grade proved.
    """

    method: Literal["sums", "join", "empty"]
    cut_at_ms: int
    audit_records: Count
    promised: Count
    audit_next: dict[str, Count] = Field(min_length=1)
    waived: list[str]


class OriginHourCounts(_MarkerModel):
    """Counts for the events of one hour that a bucket contains, as recorded in its marker.

    Attributes:
        rows: staged records, including duplicates.
        events: events after removal of duplicates.
        promised: events that audit records promise.
        unaudited: events without an audit record.
    """

    rows: Count
    events: Count
    promised: Count
    unaudited: Count


class MarkerLink(_MarkerModel):
    """The reference of a marker to the marker of the preceding bucket of the same type.

    Attributes:
        hour: label of the preceding bucket.
        blake2b: BLAKE2b-128 digest of the preceding marker file, in hexadecimal.
    """

    hour: str
    blake2b: str


class Marker(_MarkerModel):
    """The content of a bucket's `_SUCCESS` file.

    Validation is strict: a missing key, an unknown key or another type raises `ValidationError`.

    Attributes:
        type: event type.
        hour: label of the bucket's interval.
        previous: reference to the preceding bucket; None for the first bucket of the type.
        grade: proved, timed_out or forced.
        files: Avro files of the bucket.
        events: number of events in all files.
        late: number of events by earlier hour.
        books: counts by the hour of the events.
        id_sum: sum of the low 64 bits of all event ids, modulo 2**64, in hexadecimal.
        checked: number of promised events whose values were proved by a checksum.
        lost: bytes that were destroyed before they were read, by source.
        unknown: number of occasions on which an unknown number of bytes was lost, by source.
        unrepeatable: sources whose senders cannot send again.
        offsets: positions in the Kafka partitions of the type.
        software: version of the software, and the digest of the marker.
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
    books: dict[str, OriginHourCounts]
    duplicates_removed: Count
    unaudited: Count
    # keys that are absent in older markers and if their value is empty
    checked: Count = 0
    lost: dict[str, Count] = Field({})
    unknown: dict[str, Count] = Field({})
    unrepeatable: list[str] = Field([])
    id_sum: str = Field(pattern=r"^[0-9a-f]{16}$")
    offsets: list[PartitionOffset]
    ledger: str = Field(min_length=1)
    ledger_commit: Count
    attempt: str = Field(min_length=1)
    closed_at_ms: int
    software: str = Field(min_length=1)


def has_valid_self_digest(written: bytes, software: str) -> bool:
    """Return whether a marker matches the digest of itself in its `software` field.

    Markers whose `software` has at most 40 characters contain no digest and are accepted.

    Args:
        written: content of the marker file.
        software: value of the `software` field.
    """
    if len(software) <= 40:
        return True
    *before, tail = re.split(rb" blake2b=(?=[0-9a-f]{32}\")", written)
    blank = b" blake2b=".join([*before, b"0" * 32 + tail[32:]])
    return bool(before) and hashlib.blake2b(blank, digest_size=16).hexdigest().encode() == tail[:32]
