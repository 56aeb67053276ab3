"""Events that Kafka lost before anybody could copy them, held against what markers say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from hourmark_infra.judge.buckets import Bucket
from hourmark_infra.judge.expectations import Destroyed
from hourmark_infra.judge.report import Kind

_LATER_MS: Final = 5_000  # a cut so long after it was written knows of it, whatever the difference of two clocks


def against_proofs(gone: Sequence[Destroyed], buckets: Sequence[Bucket]) -> Iterator[tuple[Kind, str, str]]:
    """What is wrong, by kind, bucket or type, and detail. `gone`: those of them that are nowhere.

    No bucket of their time is proved whose cut came after they were written; and by a type's markers as many are missing, or
    more: an event that was promised twice is missing once more there.
    """
    by_time = {(bucket.type, bucket.start_ms): bucket for bucket in buckets}
    lengths_ms = {bucket.end_ms - bucket.start_ms for bucket in buckets}
    for row in gone:
        for length_ms in lengths_ms:
            bucket = by_time.get((row.type, row.time_ms // length_ms * length_ms))
            if bucket is not None and _must_know(bucket, row):
                cut = f"its cut is of {bucket.marker.evidence.cut_at_ms} ms"
                detail = f"proved without event {row.event_id}, which was written at {row.written_ms} ms; {cut}"
                yield Kind.FALSE_PROOF, bucket.path, detail
    for event_type, count in sorted(Counter(row.type for row in gone).items()):
        missing = sum(_missing(bucket) for bucket in buckets if bucket.type == event_type)
        if missing < count:
            detail = f"by its markers {missing} events are missing, and {count} were destroyed"
            yield Kind.MANIFEST, event_type, detail


def _must_know(bucket: Bucket, row: Destroyed) -> bool:
    return bucket.marker.grade == "proved" and bucket.marker.evidence.cut_at_ms > row.written_ms + _LATER_MS


def _missing(bucket: Bucket) -> int:
    books = bucket.marker.books.values()
    return sum(book.promised + book.unaudited for book in books) - bucket.marker.events
