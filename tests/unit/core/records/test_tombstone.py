"""The tombstone of removed buckets: what it proves about them, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.records import manifest

from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest, PreviousMarker
from hourmark.records.tombstone import RemovedBucket, Tombstone

FIRST = Hour.parse("2026-11-21T05")


def _marker(hour: Hour, previous: PreviousMarker | None, **changes: Any) -> bytes:
    made = manifest(hour, previous=previous, **changes)
    return made.with_own_digest().encode()


def _tombstone(*markers: bytes) -> Tombstone:
    return Tombstone(
        type="end-song",
        date="2026-11-21",
        bucket_seconds=3600,
        setting="etl.retention_days",
        days=90,
        removed_at_ms=1_800_000_000_000,
        removed_by="hourmark@etl-1",
        buckets=[RemovedBucket.from_marker(marker) for marker in markers],
        software="hourmark test",
    ).with_own_digest()


def _two_markers() -> tuple[bytes, bytes]:
    first = _marker(FIRST, None, type="end-song")
    return first, _marker(
        FIRST.next(), PreviousMarker.from_marker(str(FIRST), first), type="end-song"
    )


def test_a_tombstone_keeps_the_markers_byte_for_byte() -> None:
    markers = _two_markers()
    decoded = Tombstone.decode(_tombstone(*markers).encode())
    assert [of.marker.encode() for of in decoded.buckets] == [*markers]
    found = decoded.find_bucket(str(FIRST))
    assert found is not None
    assert found.reference == PreviousMarker.from_marker(str(FIRST), markers[0])
    assert found.grade is Manifest.decode(markers[0]).grade
    assert decoded.find_bucket("2026-11-21T23") is None


@pytest.mark.parametrize(
    ("field", "value"), [("days", 9), ("date", "2026-11-22"), ("removed_by", "somebody")]
)
def test_a_changed_tombstone_is_refused(field: str, value: object) -> None:
    content = json.loads(_tombstone(*_two_markers()).encode())
    content[field] = value
    with pytest.raises(ValueError, match="does not match its own digest"):
        Tombstone.decode(json.dumps(content, indent=1).encode())


@pytest.mark.parametrize("field", ["events", "bytes", "blake2b", "grade"])
def test_an_entry_that_differs_from_its_marker_is_refused(field: str) -> None:
    changed = {"events": 17, "bytes": 17, "blake2b": "0" * 32, "grade": "forced"}
    good = _tombstone(*_two_markers())
    raw = json.loads(good.encode())
    raw["buckets"][0][field] = changed[field]
    raw["software"] = "hourmark test"
    bad = Tombstone.model_validate(raw).with_own_digest()
    with pytest.raises(ValueError, match=f"entry of {FIRST} differs from the marker"):
        Tombstone.decode(bad.encode())


def test_a_broken_chain_within_the_day_is_refused() -> None:
    first = _marker(FIRST, None, type="end-song")
    second = _marker(FIRST.next(), None, type="end-song")
    with pytest.raises(ValueError, match="does not refer to the marker of 2026-11-21T05"):
        Tombstone.decode(_tombstone(first, second).encode())


def test_a_marker_of_another_type_or_day_is_refused() -> None:
    other_day = _marker(Hour.parse("2026-11-20T05"), None, type="end-song")
    for marker in (_marker(FIRST, None, type="click"), other_day):
        with pytest.raises(ValueError, match="it contains the marker of"):
            Tombstone.decode(_tombstone(marker).encode())


def test_another_format_is_refused_with_the_next_step() -> None:
    good = _tombstone(*_two_markers())
    newer = good.model_copy(update={"format": 2, "software": "hourmark test"}).with_own_digest()
    with pytest.raises(ValueError, match="this version reads 1; use a newer hourmark"):
        Tombstone.decode(newer.encode())
