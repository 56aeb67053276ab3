"""The manifest of a closed bucket: the content of its marker file `_SUCCESS`, as JSON.

The marker's presence means that the bucket is complete and final. Readers use the files that it
lists and ignore all others in the folder. Its field `software` ends with a digest of the whole
marker, so a reader detects a damaged one. Markers before 0.3.0 have no digest of their own, but the
marker of the following hour contains it.
"""

from __future__ import annotations

import enum
import hashlib
import re
from typing import Final

from pydantic import Field, ValidationError

from hourmark.config.groups import FrozenModel, Positive

MARKER: Final = "_SUCCESS"
FORMAT: Final = 1
_OWN_DIGEST: Final = re.compile(rb'"software": ?"[^"\\]* blake2b=([0-9a-f]{32})"')
_SOFTWARE_CHARS_MAX: Final = (
    40  # without a digest, so that none is taken for one without because it was damaged there
)
_BLANK: Final = b"0" * 32  # stands in the place of the digest that is taken


class Grade(enum.Enum):
    """The strength of the evidence that a bucket is complete."""

    PROVED = "proved"  # every promise up to the cut is kept
    TIMED_OUT = "timed_out"  # past a deadline; what was waived is named
    FORCED = "forced"  # by an operator; what was waived is named


class BucketFile(FrozenModel):
    """An Avro container file of a bucket."""

    name: str
    records: Positive
    bytes: Positive
    blake2b: str
    """hex digest (16 bytes) of the file"""
    schema_id: int
    schema_fingerprint: str
    origin_hour: str | None = None
    """of late files: always null where a file mixes origin hours"""


class PreviousMarker(FrozenModel):
    """A reference to the marker of a type's previous bucket, with its digest.

    Markers of a type form a chain, so a bucket cannot be changed, added or removed unnoticed.
    """

    hour: str
    blake2b: str
    """hex digest (16 bytes) of its `_SUCCESS`"""

    @classmethod
    def from_marker(cls, hour: str, marker: bytes) -> PreviousMarker:
        """Return the reference to a marker.

        Args:
            hour: The hour of the previous bucket, as text.
            marker: Content of its `_SUCCESS` file.
        """
        return cls(hour=hour, blake2b=_digest(marker))


class BucketOffset(FrozenModel):
    """The offset up to which a bucket and its predecessors contain a partition's records.

    Attributes:
        topic: Name on the central cluster.
        topic_id: Kafka's id of the topic.
        partition: Partition number.
        next: First offset that is in neither this bucket nor an earlier one.
    """

    topic: str
    topic_id: str
    partition: int
    next: int


class BucketEvidence(FrozenModel):
    """The evidence for a bucket's grade: what was promised, and how the rows were compared with it."""

    method: str
    """sums: counts and id sums agree; join: by range id over distinct ids; empty: nothing was promised"""
    cut_at_ms: int
    """the closer's clock when the cut was taken"""
    audit_records: int
    """settled by this bucket"""
    promised: int
    """distinct ids promised by them, of hours up to this one"""
    audit_next: dict[str, int]
    """central offset up to which audit records were read, by partition"""
    waived: list[str] = Field([])


class HourTotals(FrozenModel):
    """The record counts of one origin hour in a bucket.

    The events promised for an hour are the sum of `events` over all buckets, less `unaudited`.
    """

    rows: int
    """listed, duplicates counted each time"""
    events: int
    """records in this bucket"""
    promised: int
    """distinct ids promised by the audit records that this bucket settles"""
    unaudited: int
    """records that no audit record had promised when this bucket was sealed"""


class SetAsideRecords(FrozenModel):
    """Records of one partition that were excluded from a bucket for the same reason."""

    topic: str
    partition: int
    reason: str
    records: int
    first_offset: int
    last_offset: int


class MissingRanges(FrozenModel):
    """The byte ranges whose rows this bucket or an earlier one may lack or contain in two versions."""

    ranges: list[str] = Field([])
    """range ids, hex: those that `waived` names"""
    more: bool = False
    """whether rows of ranges that nothing names may be missing, too"""


# Fields that a marker has only where they say something. 0.2.0 knows none of them, 0.3.0 not the
# last five.
_LATER: Final = (
    "lost",
    "unknown",
    "unrepeatable",
    "checked",
    "set_aside",
    "set_aside_records",
    "left_out",
    "lacks",
)


class Manifest(FrozenModel):
    """The manifest of a closed bucket: its files, counts, grade and evidence."""

    format: int = FORMAT
    type: str
    hour: str
    bucket_seconds: int
    previous: PreviousMarker | None = None
    """null: this is the type's first bucket"""
    grade: Grade
    evidence: BucketEvidence
    files: list[BucketFile]
    events: int
    """records in all files"""
    late: dict[str, int]
    """late records by origin hour"""
    books: dict[str, HourTotals] = Field({})
    """by origin hour, this bucket's own included"""
    duplicates_removed: int
    unaudited: int
    """records that no audit record promised (yet)"""
    checked: int = 0
    """promised events whose values were proved by a checksum; absent where there are none, as in markers before 0.4.0"""
    set_aside: int = 0
    """records on the type's topics that were read since the bucket before, and cannot be in any bucket; absent if none"""
    set_aside_records: list[SetAsideRecords] = Field([])
    """which they are: at most 50 entries, those with the most records"""
    left_out: int = 0
    """staged rows whose datums could not be written, and that an override gave up; `waived` names some; absent if none"""
    lacks: MissingRanges | None = None
    """absent where the grade is `proved`, and in markers before 0.4.0"""
    lost: dict[str, int] = Field({})
    """by source: bytes that hosts know to have been destroyed before they were read, and that may have been of this hour"""
    unknown: dict[str, int] = Field({})
    """by source: on how many occasions bytes nobody counted may have been destroyed too. The grade is of what was read"""
    unrepeatable: list[str] = Field([])
    """sources that hosts receive from senders whom nobody can ask again: the grade is of what reached a host's disk"""
    id_sum: str
    """sum modulo 2^64 of the last 8 bytes of all ids, hex"""
    offsets: list[BucketOffset]
    ledger: str
    """UUID of the ledger"""
    ledger_commit: int
    attempt: str
    closed_at_ms: int
    software: str
    """which wrote it, and ` blake2b=` with the hex digest (16 bytes) of this marker, 32 zeros in its own place"""

    def with_own_digest(self) -> Manifest:
        """Return a copy whose field `software` ends with the digest of the copy itself."""
        blank = self.model_copy(update={"software": f"{self.software} blake2b={_BLANK.decode()}"})
        return self.model_copy(
            update={"software": f"{self.software} blake2b={_digest(blank.encode())}"}
        )

    def encode(self) -> bytes:
        """Return the manifest as indented JSON.

        Fields added after 0.2.0 are omitted if they are empty, because older readers reject unknown
        fields.
        """
        return self.model_dump_json(
            indent=1, exclude={name for name in _LATER if not getattr(self, name)}
        ).encode()

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """Parse the content of a `_SUCCESS` file.

        Raises:
            ValueError: The content is not a manifest, or does not match the digest that it
                contains.
        """
        try:
            decoded = cls.model_validate_json(content)
        except ValidationError as error:
            raise ValueError(f"not a manifest: {error}") from error
        if len(decoded.software) > _SOFTWARE_CHARS_MAX:
            _check_own_digest(content)
        return decoded


def _check_own_digest(content: bytes) -> None:
    own = _OWN_DIGEST.search(content, max(content.rfind(b'"software"'), 0))
    if (
        own is None
        or _digest(content[: own.start(1)] + _BLANK + content[own.end(1) :]) != own[1].decode()
    ):
        raise ValueError(
            "it was changed since it was written: its digest of itself is another; bring "
            "it back from a copy"
        )


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
