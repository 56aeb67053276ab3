"""A marker vouches for itself: no flipped bit is read as what was written."""

from __future__ import annotations

import json

import pytest

from hourmark.records.manifest import (
    BucketEvidence,
    BucketFile,
    BucketOffset,
    Grade,
    Manifest,
    PreviousMarker,
)

MANIFEST = Manifest(
    type="click",
    hour="2026-11-21T05",
    bucket_seconds=3600,
    previous=PreviousMarker.from_marker("2026-11-21T04", b"before"),
    grade=Grade.PROVED,
    evidence=BucketEvidence(
        method="sums", cut_at_ms=1, audit_records=2, promised=3, audit_next={"0": 4}
    ),
    files=[],
    events=0,
    late={},
    duplicates_removed=0,
    unaudited=0,
    id_sum="0" * 16,
    offsets=[BucketOffset(topic="t", topic_id="i", partition=0, next=71)],
    ledger="l",
    ledger_commit=5,
    attempt="a",
    closed_at_ms=6,
    software="hourmark 0.3.0",
)


def test_every_flipped_bit_of_a_marker_is_seen() -> None:
    content = MANIFEST.with_own_digest().encode()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):  # of JSON, of fields, or of the digest
            Manifest.decode(bytes(flipped))


def test_what_is_sealed_is_read_as_it_was_written() -> None:
    sealed = MANIFEST.with_own_digest()
    assert Manifest.decode(sealed.encode()) == sealed
    assert Manifest.decode(sealed.encode()).encode() == sealed.encode()
    assert sealed.model_copy(update={"software": MANIFEST.software}) == MANIFEST


def test_markers_from_before_have_no_digest_and_stay_readable() -> None:
    assert Manifest.decode(MANIFEST.encode()) == MANIFEST


FILE = BucketFile(
    name="part-00000.avro",
    records=1,
    bytes=9,
    blake2b="0" * 32,
    schema_id=1,
    schema_fingerprint="0" * 16,
)


def test_the_codec_is_named_unless_0_3_0_reads_it() -> None:
    zstandard = MANIFEST.model_copy(update={"files": [FILE]})
    deflate = zstandard.model_copy(update={"codec": "deflate"})
    assert b"codec" not in zstandard.encode() and b"codec" not in MANIFEST.encode()
    assert Manifest.decode(deflate.with_own_digest().encode()).codec == "deflate"
    assert (deflate.files_codec, zstandard.files_codec) == ("deflate", "zstandard")
    assert MANIFEST.files_codec is None, "it has no files"


def test_a_marker_of_an_unknown_codec_is_refused() -> None:
    said = json.loads(MANIFEST.encode()) | {"codec": "snappy"}
    with pytest.raises(ValueError, match="codec"):
        Manifest.decode(json.dumps(said).encode())


def test_a_marker_that_was_written_anew_by_hand_is_refused() -> None:
    said = json.loads(MANIFEST.with_own_digest().encode())
    said["offsets"][0]["next"] = 72
    with pytest.raises(ValueError, match="does not match its own digest"):
        Manifest.decode(json.dumps(said, indent=1).encode())
