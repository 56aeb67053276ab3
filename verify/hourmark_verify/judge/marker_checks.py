"""marker checks

What markers say, held against what is there, against themselves, and against the markers before
them.

Events that Kafka lost before anybody could copy them, held against what markers say.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hourmark_verify.judge.buckets import StoredBucket
from hourmark_verify.judge.expectations import DestroyedEvent
from hourmark_verify.judge.marker import MarkerLink, OriginHourCounts
from hourmark_verify.judge.report import FindingKind


@dataclasses.dataclass
class BucketContents:
    """What a bucket's files hold. `tails`: sum of the ids' last 8 bytes."""

    origins: Counter[str] = dataclasses.field(
        default_factory=Counter
    )  # events by the hour they are of
    tails: int = 0


def schema_fingerprint(schema: Any) -> str:
    """16 hex digits of BLAKE2b over the schema as JSON with sorted keys and no spaces."""
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def find_contradictions(
    bucket: StoredBucket, counted: BucketContents, grades: Sequence[str]
) -> Iterator[str]:  # a list of rules
    """Where a marker says other than its bucket, or than itself."""
    said, evidence, books = bucket.marker, bucket.marker.evidence, bucket.marker.books
    summed = OriginHourCounts(
        **{
            name: sum(getattr(b, name) for b in books.values())
            for name in OriginHourCounts.model_fields
        }
    )
    late = {hour: count for hour, count in counted.origins.items() if hour != bucket.hour}
    kinds = Counter("late" if f.name.startswith("late-") else "part" for f in said.files)
    names = [f"{kind}-{n:05d}.avro" for kind in ("part", "late") for n in range(kinds[kind])]
    events = {hour: book.events for hour, book in books.items() if book.events}
    for says, is_, what in (
        (said.type, bucket.type, "type"),
        (said.hour, bucket.hour, "hour"),
        (said.events, counted.origins.total(), "number of events"),
        (said.late, late, "late events"),
        (said.id_sum, f"{counted.tails % 2**64:016x}", "sum of ids"),
        ([f.name for f in said.files], names, "files' names"),
        (events, dict(counted.origins), "books' events"),
        (summed.promised, evidence.promised, "promised events, by its books"),
        (summed.unaudited, said.unaudited, "unaudited, by its books"),
        (evidence.promised > 0, evidence.audit_records > 0, "audit records beside promises"),
        (said.grade != "proved", bool(evidence.waived), "excuses beside its grade"),
    ):
        if says != is_:
            yield f"the marker's {what}: it says {says!r}, it must be {is_!r}"
    if (
        said.grade != "forced" and summed.rows - said.events != said.duplicates_removed
    ):  # forced may go without files
        yield (
            f"of {summed.rows} rows by its books {said.events} events and "
            f"{said.duplicates_removed} duplicates came"
        )
    if said.checked > evidence.promised or (
        evidence.method == "sums" and said.checked not in (0, evidence.promised)
    ):
        yield (
            f"by {evidence.method} it says that {said.checked} of {evidence.promised} "
            "promised events were checked"
        )
    if said.grade not in grades:
        yield f"its grade is {said.grade}: {'; '.join(evidence.waived)[:300]}"
    if evidence.method == "empty" and (evidence.promised or summed.rows or said.unaudited):
        yield "it is proved as empty, and is not"
    if (
        evidence.method == "sums"
        and said.grade == "proved"
        and (evidence.promised != summed.rows or said.unaudited)
    ):
        yield f"it is proved by sums, of {summed.rows} rows and {evidence.promised} promised events"
    if any(book.events > book.rows for book in books.values()) or any(
        label > bucket.hour for label in books
    ):
        yield "its books have more events than rows, or later hours than its own"
    for what, at_ms in ("cut", evidence.cut_at_ms), ("closed", said.closed_at_ms):
        if said.grade == "proved" and at_ms < bucket.end_ms:
            yield f"it was {what} at {at_ms} ms, before its hour's end {bucket.end_ms} ms"
    if (said.events and not said.offsets) or len(
        {(o.topic, o.partition) for o in said.offsets}
    ) < len(said.offsets):
        yield "its offsets name no partition, or one twice"


def find_chain_faults(buckets: Sequence[StoredBucket]) -> Iterator[tuple[str, str]]:
    """Path and fault where the buckets of a type, in turn, do not follow from one another."""
    before = None
    for bucket in buckets:
        if bucket.marker.previous != before:
            yield (
                bucket.path,
                f"its marker follows {bucket.marker.previous}, what stands before it is {before}",
            )
        before = MarkerLink(hour=bucket.hour, blake2b=bucket.blake2b)
    for last, bucket in itertools.pairwise(buckets):
        if bucket.start_ms != last.end_ms:
            yield (
                bucket.path,
                f"the bucket before it is {last.path}: hours between them, or lengths that differ",
            )
        if (
            bucket.marker.ledger == last.marker.ledger
            and bucket.marker.ledger_commit < last.marker.ledger_commit
        ):
            yield bucket.path, "its ledger's commit is lower than the one of the bucket before it"
    ledgers = [
        ledger for ledger, _ in itertools.groupby(bucket.marker.ledger for bucket in buckets)
    ]
    if len({*ledgers}) < len(ledgers):
        yield buckets[-1].path, f"ledgers came back after others: {', '.join(ledgers)}"


def find_offset_faults(buckets: Sequence[StoredBucket]) -> Iterator[tuple[str, str]]:
    """Path and fault where offsets are of another type's topic, go back, or are of a recreated
    topic with nothing waived.
    """
    for bucket in buckets:
        for topic in sorted({o.topic for o in bucket.marker.offsets}):
            if not f".{topic}".endswith(f".events.{bucket.type}"):
                yield bucket.path, f"its offsets are of {topic}, which is no topic of its type"
    for last, bucket in itertools.pairwise(buckets):
        before = {(o.topic, o.partition): o for o in last.marker.offsets}
        for o in bucket.marker.offsets:
            earlier = before.get((o.topic, o.partition))
            if earlier is None:
                continue
            if earlier.topic_id != o.topic_id:
                if not bucket.marker.evidence.waived:
                    yield (
                        bucket.path,
                        (
                            f"{o.topic} has id {o.topic_id}, in the bucket before "
                            f"{earlier.topic_id}; no gap is named"
                        ),
                    )
            elif o.next < earlier.next:
                yield (
                    bucket.path,
                    f"{o.topic}-{o.partition} goes back from {earlier.next} to {o.next}",
                )
        audit = last.marker.evidence.audit_next
        for partition, next_offset in bucket.marker.evidence.audit_next.items():
            if next_offset < audit.get(partition, 0) and not bucket.marker.evidence.waived:
                yield (
                    bucket.path,
                    (
                        f"audit records {partition} go back from {audit[partition]} to "
                        f"{next_offset}; no gap is named"
                    ),
                )


def find_balance_faults(buckets: Sequence[StoredBucket]) -> Iterator[tuple[str, str]]:
    """Path and fault where the books of all buckets of a type do not add up, or their offsets have
    no room for their events.
    """
    next_offset: Counter[tuple[str, int]] = Counter()
    events = 0
    books: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for bucket in buckets:
        events += bucket.marker.events
        for o in bucket.marker.offsets:
            next_offset |= Counter({(o.topic_id, o.partition): o.next})  # the larger of both
        if events > next_offset.total():
            yield (
                bucket.path,
                (
                    f"up to it there are {events} events, by its offsets at most "
                    f"{next_offset.total()} records"
                ),
            )
        for hour, book in bucket.marker.books.items():
            books[hour].update(book.model_dump())
    if all(bucket.marker.grade == "proved" for bucket in buckets):
        for hour, of in books.items():
            if of["events"] > of["promised"] + of["unaudited"] or of["promised"] > of["rows"]:
                yield (
                    buckets[-1].path,
                    (
                        f"of {hour} all buckets have {dict(of)}: promises, unaudited and rows "
                        "do not add up"
                    ),
                )


# a cut so long after it was written knows of it, one so long before does not, whatever two clocks
# say
_APART_MS: Final = 5_000


def find_destroyed_event_faults(
    gone: Sequence[DestroyedEvent], buckets: Sequence[StoredBucket]
) -> Iterator[tuple[FindingKind, str, str]]:
    """What is wrong, by kind, bucket or type, and detail. `gone`: those of them that are nowhere.

    Of the buckets of an event's hour and of later ones, the first whose cut came after it was
    written had to wait for it, also where it came late: it is not proved, or one before it is not
    whose cut was taken about then. And by a type's markers as many are missing, or more: an event
    that was promised twice is missing once more there.
    """
    by_type: defaultdict[str, list[StoredBucket]] = defaultdict(list)
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
            yield FindingKind.FALSE_PROOF, false.path, detail
    for event_type, count in sorted(Counter(row.type for row in gone).items()):
        missing = sum(map(_missing_events, by_type[event_type]))
        if missing < count:
            detail = f"by its markers {missing} events are missing, and {count} were destroyed"
            yield FindingKind.MANIFEST, event_type, detail


def _cut_ms(bucket: StoredBucket) -> int:
    return bucket.marker.evidence.cut_at_ms


def _missing_events(bucket: StoredBucket) -> int:
    books = bucket.marker.books.values()
    return sum(book.promised + book.unaudited for book in books) - bucket.marker.events
