"""Events that Kafka lost before anybody could copy them, held against what markers say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hourmark_infra.judge.buckets import Bucket
from hourmark_infra.judge.expectations import Destroyed, Expectations
from hourmark_infra.judge.report import Kind


def against_proofs(gone: Sequence[Destroyed], told: Expectations, buckets: Sequence[Bucket]) -> Iterator[tuple[Kind, str, str]]:
    """What is wrong, by kind, bucket or type, and detail. `gone`: those of them that are nowhere.

    No bucket of their time is proved after they were destroyed; and what is missing by a type's markers is they, no event more
    or less. Of a type that is posted to, a sender may have got two promises for one event: there nothing is counted.
    """
    by_time = {(bucket.type, bucket.start_ms): bucket for bucket in buckets}
    lengths_ms = {bucket.end_ms - bucket.start_ms for bucket in buckets}
    for row in gone:
        for length_ms in lengths_ms:
            bucket = by_time.get((row.type, row.time_ms // length_ms * length_ms))
            if bucket is not None and bucket.marker.grade == "proved" and bucket.marker.closed_at_ms > row.at_ms:
                closed = f"closed at {bucket.marker.closed_at_ms} ms"
                detail = f"{closed} without event {row.event_id}, which was destroyed at {row.at_ms} ms"
                yield Kind.FALSE_PROOF, bucket.path, detail
    counts = Counter(row.type for row in gone)
    for event_type in sorted({row.type for row in told.destroyed} - {row.type for row in told.api}):
        missing = sum(_missing(bucket) for bucket in buckets if bucket.type == event_type)
        if missing != counts[event_type]:
            detail = f"by its markers {missing} events are missing, and {counts[event_type]} were destroyed"
            yield Kind.MANIFEST, event_type, detail


def _missing(bucket: Bucket) -> int:
    books = bucket.marker.books.values()
    return sum(book.promised + book.unaudited for book in books) - bucket.marker.events
