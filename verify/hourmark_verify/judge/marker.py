"""What a marker says, read from the documents a second time: no key more, no key less, each of its
very type.
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
    """One Avro container."""

    name: str
    records: int = Field(ge=1)
    bytes: int = Field(ge=1)
    blake2b: str
    schema_id: int
    schema_fingerprint: str
    origin_hour: None


class PartitionOffset(_MarkerModel):
    """How far a topic-partition was staged."""

    topic: str = Field(min_length=1)
    topic_id: str = Field(min_length=1)
    partition: Count
    next: Count


class MarkerEvidence(_MarkerModel):
    """What the grade rests on."""

    method: Literal["sums", "join", "empty"]
    cut_at_ms: int
    audit_records: Count
    promised: Count
    audit_next: dict[str, Count] = Field(min_length=1)
    waived: list[str]


class OriginHourCounts(_MarkerModel):
    """One origin hour."""

    rows: Count
    events: Count
    promised: Count
    unaudited: Count


class MarkerLink(_MarkerModel):
    """The marker of the hour before; `blake2b` (16 bytes, hex) of all of it."""

    hour: str
    blake2b: str


class Marker(_MarkerModel):
    """The content of `_SUCCESS`."""

    format: Literal[1]
    type: str
    hour: str
    bucket_seconds: int = Field(ge=60, le=3600, multiple_of=60)
    previous: MarkerLink | None  # null: the type's first
    grade: Literal["proved", "timed_out", "forced"]
    evidence: MarkerEvidence
    files: list[MarkerFile]
    events: Count
    late: dict[str, int]
    books: dict[str, OriginHourCounts]
    duplicates_removed: Count
    unaudited: Count
    checked: Count = (
        0  # promised events whose values a checksum proved; absent where there are none
    )
    lost: dict[str, Count] = Field({})  # by source; markers of before have neither
    unknown: dict[str, Count] = Field({})
    unrepeatable: list[str] = Field(
        []
    )  # sources; absent where there are none, as the two before it
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
    *before, said = re.split(rb" blake2b=(?=[0-9a-f]{32}\")", written)
    blank = b" blake2b=".join([*before, b"0" * 32 + said[32:]])
    return bool(before) and hashlib.blake2b(blank, digest_size=16).hexdigest().encode() == said[:32]
