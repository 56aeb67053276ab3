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
    40  # without a digest: a longer text must have one, even if it is damaged
)
_BLANK: Final = b"0" * 32  # replaces the digest while it is computed


class Grade(enum.Enum):
    """The strength of the evidence that a bucket is complete."""

    PROVED = "proved"  # all promises up to the cut are met
    TIMED_OUT = "timed_out"  # closed after the deadline; what was waived is listed
    FORCED = "forced"  # closed by an operator; what was waived is listed


class BucketFile(FrozenModel):
    """An Avro container file of a bucket.

    Attributes:
        name: File name within the bucket's folder.
        records: Number of records.
        bytes: Size of the file.
        blake2b: Hex digest of the file (16 bytes).
        schema_id: Registry's id of the writer schema.
        schema_fingerprint: Fingerprint of the writer schema.
        origin_hour: Hour in which the events of a file of late events belong. Null otherwise, and
            if the file mixes origin hours.
    """

    name: str
    records: Positive
    bytes: Positive
    blake2b: str
    schema_id: int
    schema_fingerprint: str
    origin_hour: str | None = None


class PreviousMarker(FrozenModel):
    """A reference to the marker of a type's previous bucket, with its digest.

    Markers of a type form a chain, so a bucket cannot be changed, added or removed unnoticed.

    Attributes:
        hour: The previous hour.
        blake2b: Hex digest of its `_SUCCESS` file (16 bytes).
    """

    hour: str
    blake2b: str

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
    """The evidence for a bucket's grade: what was promised, and how the rows were compared with it.

    Attributes:
        method: `sums` if counts and id sums were compared, `join` if ranges were compared over
            distinct ids, `empty` if nothing was promised.
        cut_at_ms: Unix milliseconds on the closer's clock when the cut was taken.
        audit_records: Number of audit records settled by this bucket.
        promised: Number of distinct ids that they promise, for hours up to this one.
        audit_next: By partition, the central offset up to which audit records were read.
        waived: What was missing and was waived, in words.
    """

    method: str
    cut_at_ms: int
    audit_records: int
    promised: int
    audit_next: dict[str, int]
    waived: list[str] = Field([])


class HourTotals(FrozenModel):
    """The record counts of one origin hour in a bucket.

    The events promised for an hour are the sum of `events` over all buckets, less `unaudited`.

    Attributes:
        rows: Number of staged rows, including duplicates.
        events: Number of records in this bucket.
        promised: Number of distinct ids promised by the audit records that this bucket settles.
        unaudited: Number of records that no audit record had promised when the bucket was sealed.
    """

    rows: int
    events: int
    promised: int
    unaudited: int


class SetAsideRecords(FrozenModel):
    """Records of one partition that were excluded from a bucket for the same reason.

    Attributes:
        topic: The topic.
        partition: Partition number.
        reason: Why they cannot be in a bucket.
        records: Number of records.
        first_offset: Offset of the first one.
        last_offset: Offset of the last one.
    """

    topic: str
    partition: int
    reason: str
    records: int
    first_offset: int
    last_offset: int


class MissingRanges(FrozenModel):
    """The byte ranges whose rows this bucket or an earlier one may lack or contain in two versions.

    Attributes:
        ranges: Hex range ids, those named in `waived`.
        more: Whether rows of ranges with unknown ids may be missing too.
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
)


class Manifest(FrozenModel):
    """The manifest of a closed bucket: its files, counts, grade and evidence.

    Attributes:
        format: Version of the format.
        type: Name of the event type.
        hour: The bucket's hour.
        bucket_seconds: Length of the bucket.
        previous: Marker of the previous hour; null for the type's first bucket.
        grade: How the bucket was proved complete.
        evidence: What the grade is based on.
        files: The bucket's files.
        events: Number of records in all files.
        late: Number of late records, by origin hour.
        books: Totals by origin hour, including this bucket's own.
        duplicates_removed: Number of duplicate rows that were dropped.
        unaudited: Number of records that no audit record has promised yet.
        checked: Number of promised events whose values were verified by a checksum. Absent if none,
            and before 0.4.0.
        set_aside: Number of records read since the previous bucket that cannot be in any bucket.
            Absent if none.
        set_aside_records: At most 50 entries about them, those with the most records.
        left_out: Number of staged rows that could not be written and were given up by an override.
            Absent if none.
        lacks: Ranges whose rows may be missing. Absent if the grade is `proved`, and before 0.4.0.
        lost: By source, bytes known to be destroyed before they were read that may have been of
            this hour.
        unknown: By source, on how many occasions an unknown number of further bytes may have been
            destroyed.
        unrepeatable: Sources received from senders that cannot send again; the grade covers what
            reached a host's disk.
        id_sum: Sum of the last 8 bytes of all ids, modulo 2^64, in hex.
        offsets: Offsets up to which partitions are contained in this bucket or an earlier one.
        ledger: UUID of the ledger.
        ledger_commit: Number of the ledger's commit.
        attempt: Id of the attempt that wrote the bucket.
        closed_at_ms: Unix milliseconds on the closer's clock.
        software: The version that wrote it, and ` blake2b=` with the hex digest (16 bytes) of this
            marker, computed with 32 zeros in its place.
    """

    format: int = FORMAT
    type: str
    hour: str
    bucket_seconds: int
    previous: PreviousMarker | None = None
    grade: Grade
    evidence: BucketEvidence
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
    id_sum: str
    offsets: list[BucketOffset]
    ledger: str
    ledger_commit: int
    attempt: str
    closed_at_ms: int
    software: str

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
