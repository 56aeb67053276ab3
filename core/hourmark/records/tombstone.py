"""The tombstone of a day whose buckets were removed: `TYPE/_removed/DATE.json`, as JSON.

It contains the complete marker (`_SUCCESS` file) of each removed bucket, so the chain of markers
can still be verified, and the evidence of completeness is kept without the events. Its field
`software` ends with a digest of the whole tombstone.
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Final

from pydantic import Field, ValidationError

from hourmark.config.groups import FrozenModel, Positive
from hourmark.records.manifest import Grade, Manifest, PreviousMarker
from hourmark.records.self_digest import add_own_digest, check_own_digest, compute_record_digest

FORMAT: Final = 1
REMOVED_FOLDER: Final = "_removed"  # readers skip names that begin with _


class RemovedBucket(FrozenModel):
    """A bucket that was removed, with its complete marker.

    Attributes:
        hour: Hour of the bucket.
        blake2b: BLAKE2b digest of the marker (16 bytes) in hex, to which the next marker refers.
        grade: Strength of the evidence that the bucket was complete.
        events: Number of events in all files.
        late: Maps each earlier hour to its number of late events in the bucket.
        bytes: Size of all files, without the marker.
        marker: Content of the bucket's `_SUCCESS` file.
    """

    hour: str
    blake2b: str
    grade: Grade
    events: int
    late: dict[str, int]
    bytes: int
    marker: str

    @classmethod
    def from_marker(cls, marker: builtins.bytes) -> RemovedBucket:
        """Create the entry of a bucket from the content of its `_SUCCESS` file.

        Raises:
            ValueError: The content is not a valid manifest.
        """
        return cls._from_manifest(Manifest.decode(marker), marker)

    @classmethod
    def _from_manifest(cls, manifest: Manifest, marker: builtins.bytes) -> RemovedBucket:
        return cls(
            hour=manifest.hour,
            blake2b=compute_record_digest(marker),
            grade=manifest.grade,
            events=manifest.events,
            late=manifest.late,
            bytes=sum(file.bytes for file in manifest.all_files),
            marker=marker.decode(),
        )

    @property
    def manifest(self) -> Manifest:
        """Return the manifest in the marker, which is parsed again in each call."""
        return Manifest.decode(self.marker.encode())

    @property
    def reference(self) -> PreviousMarker:
        """Return the reference with which the next marker names this bucket."""
        return PreviousMarker(hour=self.hour, blake2b=self.blake2b)


class Tombstone(FrozenModel):
    """The record of all removed buckets of one event type and day (UTC).

    Attributes:
        format: Version of the format.
        type: Name of the event type.
        date: The day, such as `2026-11-21`.
        bucket_seconds: Length of a bucket.
        setting: Name of the setting by which the buckets were removed.
        days: Value of the setting at that time, in days.
        removed_at_ms: Time at which the removal began, in Unix milliseconds on the clock of the
            process that removed the buckets.
        removed_by: User and host that removed the buckets, such as `hourmark@etl-1`.
        buckets: The buckets in ascending order of their hours.
        software: Version of the software that wrote the tombstone, then ` blake2b=` and the hex
            digest (16 bytes) of this tombstone, computed with 32 zeros in its place.
    """

    format: int = FORMAT
    type: str
    date: str
    bucket_seconds: int
    setting: str
    days: Positive
    removed_at_ms: int
    removed_by: str
    buckets: list[RemovedBucket] = Field(min_length=1)
    software: str

    def with_own_digest(self) -> Tombstone:
        """Return a copy of the tombstone with a digest of its content."""
        return add_own_digest(self)

    def encode(self) -> bytes:
        """Return the tombstone as indented JSON, the content of its file."""
        return self.model_dump_json(indent=1).encode()

    def find_bucket(self, hour: str) -> RemovedBucket | None:
        """Return the removed bucket of an hour; None if the hour had no bucket."""
        return next((of for of in self.buckets if of.hour == hour), None)

    @classmethod
    def decode(cls, content: bytes) -> Tombstone:
        """Parse the content of a tombstone, and verify its digest and all markers in it.

        Args:
            content: The bytes of the file.

        Raises:
            ValueError: The content is not a tombstone, does not match its own digest, or one of its
                markers is invalid or does not belong to it.
        """
        try:
            decoded = cls.model_validate_json(content)
        except ValidationError as error:
            raise ValueError(f"not a tombstone: {error}") from error
        if decoded.format != FORMAT:
            raise ValueError(
                f"its format is {decoded.format}, this version reads {FORMAT}; use a newer hourmark"
            )
        check_own_digest(content)
        decoded.check_buckets()
        return decoded

    def check_buckets(self) -> None:
        """Check that the entries match their markers, and that the markers form a chain.

        Raises:
            ValueError: An entry differs from its marker, belongs to another type, day or bucket
                length, or does not follow the entry before it.
        """
        for bucket in self.buckets:
            manifest = bucket.manifest
            if bucket != RemovedBucket._from_manifest(manifest, bucket.marker.encode()):
                raise ValueError(f"its entry of {bucket.hour} differs from the marker")
            if (manifest.type, manifest.bucket_seconds) != (self.type, self.bucket_seconds) or (
                not bucket.hour.startswith(f"{self.date}T")
            ):
                raise ValueError(
                    f"it contains the marker of {manifest.type} {manifest.hour} in buckets of "
                    f"{manifest.bucket_seconds} s"
                )
        check_references(self.buckets)


def check_references(buckets: Sequence[RemovedBucket]) -> None:
    """Check that each removed bucket names the one before it as its previous bucket.

    Args:
        buckets: Buckets in ascending order of their hours.

    Raises:
        ValueError: The chain of markers is broken between two buckets.
    """
    for before, after in itertools.pairwise(buckets):
        if after.manifest.previous != before.reference:
            raise ValueError(
                f"the marker of {after.hour} does not refer to the marker of {before.hour}"
            )
