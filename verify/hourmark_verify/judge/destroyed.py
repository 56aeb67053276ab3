"""Events that Kafka lost before anybody could copy them, held against what markers say."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from hourmark_verify.judge.buckets import Bucket
from hourmark_verify.judge.expectations import Destroyed
from hourmark_verify.judge.report import Kind

# a cut so long after it was written knows of it, one so long before does not, whatever two clocks
# say
_APART_MS: Final = 5_000


def against_proofs(
    gone: Sequence[Destroyed], buckets: Sequence[Bucket]
) -> Iterator[tuple[Kind, str, str]]:
    """What is wrong, by kind, bucket or type, and detail. `gone`: those of them that are nowhere.

    Of the buckets of an event's hour and of later ones, the first whose cut came after it was
    written had to wait for it, also where it came late: it is not proved, or one before it is not
    whose cut was taken about then. And by a type's markers as many are missing, or more: an event
    that was promised twice is missing once more there.
    """
    by_type: defaultdict[str, list[Bucket]] = defaultdict(list)
    for bucket in sorted(buckets, key=lambda bucket: bucket.start_ms):
        by_type[bucket.type].append(bucket)
    for row in gone:
        asked = (bucket for bucket in by_type[row.type] if bucket.end_ms > row.time_ms)
        may_know = (bucket for bucket in asked if _cut_ms(bucket) > row.written_ms - _APART_MS)
        as_proved = itertools.takewhile(lambda bucket: bucket.marker.grade == "proved", may_know)
        false = next((b for b in as_proved if _cut_ms(b) > row.written_ms + _APART_MS), None)
        if false is not None:
            cut = f"its cut is of {_cut_ms(false)} ms"
            detail = (
                f"proved without event {row.event_id}, which was written at {row.written_ms} "
                f"ms; {cut}"
            )
            yield Kind.FALSE_PROOF, false.path, detail
    for event_type, count in sorted(Counter(row.type for row in gone).items()):
        missing = sum(map(_missing, by_type[event_type]))
        if missing < count:
            detail = f"by its markers {missing} events are missing, and {count} were destroyed"
            yield Kind.MANIFEST, event_type, detail


def _cut_ms(bucket: Bucket) -> int:
    return bucket.marker.evidence.cut_at_ms


def _missing(bucket: Bucket) -> int:
    books = bucket.marker.books.values()
    return sum(book.promised + book.unaudited for book in books) - bucket.marker.events
