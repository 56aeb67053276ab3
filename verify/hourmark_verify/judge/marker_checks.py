"""Consistency checks of the markers (`_SUCCESS` files) of closed buckets.

A marker is compared with its bucket, with earlier markers, and with events that Kafka is known to
have lost. Its own values are compared with each other.
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
from hourmark_verify.judge.marker import EventHourCounts, Marker, MarkerLink
from hourmark_verify.judge.report import FindingKind


@dataclasses.dataclass
class BucketTotals:
    """Totals over all events in the files of one bucket, to compare with its `_SUCCESS` file.

    Attributes:
        events_by_hour: Number of events by the label of the hour (or shorter bucket interval) that
            contains their event time, such as 2026-11-21T05.
        id_sum: Sum of the last 8 bytes of all event ids, read as unsigned big-endian integers.
    """

    events_by_hour: Counter[str] = dataclasses.field(default_factory=Counter)
    id_sum: int = 0


def schema_fingerprint(schema: Any) -> str:
    """Return the fingerprint of an Avro schema as 16 hexadecimal digits.

    The fingerprint is the BLAKE2b-64 digest of the schema as JSON with sorted keys and without
    spaces.

    Args:
        schema: The schema as parsed JSON.
    """
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def find_contradictions(
    bucket: StoredBucket, contents: BucketTotals, grades: Sequence[str]
) -> Iterator[str]:
    """Yield a description of each contradiction between a bucket and its marker.

    The marker is the `_SUCCESS` file of the bucket, which states what the bucket contains.
    Contradictions between values in the marker are also reported.

    Args:
        bucket: Closed bucket with its marker.
        contents: Totals over the events in the bucket's files.
        grades: Allowed grades of the bucket, such as `proved` (verified to be complete).
    """
    marker, evidence, books = bucket.marker, bucket.marker.evidence, bucket.marker.books
    summed = EventHourCounts(
        **{
            name: sum(getattr(b, name) for b in books.values())
            for name in EventHourCounts.model_fields
        }
    )
    late = {hour: count for hour, count in contents.events_by_hour.items() if hour != bucket.hour}
    kinds = Counter("late" if f.name.startswith("late-") else "part" for f in marker.files)
    names = [f"{kind}-{n:05d}.avro" for kind in ("part", "late") for n in range(kinds[kind])]
    events = {hour: book.events for hour, book in books.items() if book.events}
    for recorded, actual, what in (
        (marker.type, bucket.type, "type"),
        (marker.hour, bucket.hour, "hour"),
        (marker.events, contents.events_by_hour.total(), "number of events"),
        (marker.late, late, "late events"),
        (marker.id_sum, f"{contents.id_sum % 2**64:016x}", "sum of ids"),
        ([f.name for f in marker.files], names, "file names"),
        (events, dict(contents.events_by_hour), "events by hour"),
        (None if marker.files else marker.codec, None, "codec, without files"),
        (summed.promised, evidence.promised, "promised events, against the sum over its hours"),
        (summed.unaudited, marker.unaudited, "unaudited events, against the sum over its hours"),
        (
            evidence.promised > 0,
            evidence.audit_records > 0,
            "promised events, against its audit records",
        ),
        (marker.grade != "proved", bool(evidence.waived), "grade, against its waived conditions"),
    ):
        if recorded != actual:
            yield f"the marker's {what}: recorded {recorded!r}, expected {actual!r}"
    yield from _find_parquet_contradictions(marker)
    # a forced bucket may lack files
    if marker.grade != "forced" and summed.rows - marker.events != marker.duplicates_removed:
        yield (
            f"its {summed.rows} rows are not the sum of {marker.events} events and "
            f"{marker.duplicates_removed} removed duplicates"
        )
    if marker.checked > evidence.promised or (
        evidence.method == "sums" and marker.checked not in (0, evidence.promised)
    ):
        yield (
            f"with method {evidence.method}, {marker.checked} of {evidence.promised} promised "
            "events cannot have been checked"
        )
    if marker.grade not in grades:
        yield f"the grade {marker.grade} is not expected: {'; '.join(evidence.waived)[:300]}"
    if evidence.method == "empty" and (evidence.promised or summed.rows or marker.unaudited):
        yield "proved as empty, but it has promised events, rows or unaudited events"
    if (
        evidence.method == "sums"
        and marker.grade == "proved"
        and (evidence.promised != summed.rows or marker.unaudited)
    ):
        yield f"proved by sums, but has {summed.rows} rows and {evidence.promised} promised events"
    if any(book.events > book.rows for book in books.values()) or any(
        label > bucket.hour for label in books
    ):
        yield "an hour of its books has more events than rows, or is later than the bucket"
    for what, at_ms in ("cut", evidence.cut_at_ms), ("closed", marker.closed_at_ms):
        if marker.grade == "proved" and at_ms < bucket.end_ms:
            yield f"{what} at {at_ms} ms, before the end of its hour at {bucket.end_ms} ms"
    if (marker.events and not marker.offsets) or len(
        {(o.topic, o.partition) for o in marker.offsets}
    ) < len(marker.offsets):
        yield "its offsets are missing or name a partition twice"


def _find_parquet_contradictions(marker: Marker) -> Iterator[str]:
    repeated, numbers = Counter[str](), {"part": itertools.count(), "late": itertools.count()}
    for file in marker.parquet:
        kind = "part" if file.origin_hour == marker.hour else "late"
        name = f"_parquet/{kind}-{next(numbers[kind]):05d}.parquet"
        repeated[file.rows_of] += file.records
        if file.name != name or not file.rows_of.startswith(f"{kind}-"):
            yield (
                f"the Parquet file {file.name} of {file.rows_of} has events of {file.origin_hour}, "
                f"so its name should be {name}"
            )
    records = {file.name: file.records for file in marker.files}
    for avro, count in repeated.items():
        if count != records.get(avro, 0):
            yield (
                f"the Parquet files of {avro} have {count} events, but that file has "
                f"{records.get(avro, 0)}"
            )


def find_chain_faults(buckets: Sequence[StoredBucket]) -> Iterator[tuple[str, str]]:
    """Check that the closed buckets of an event type form an unbroken sequence.

    Each bucket has a marker, its `_SUCCESS` file. These conditions are checked:

    - Each marker refers to the preceding marker by hour and digest.
    - Each bucket starts when the preceding one ends. A gap is accepted after a bucket that is not
      empty or not `proved` (verified to be complete), because buckets that are added later for old
      events (back-fill) skip empty hours.
    - The commit number of a ledger (the database of the ETL) never decreases.
    - A ledger is not used again after another one was used.

    Args:
        buckets: All closed buckets of one type, sorted by time.

    Yields:
        (bucket path, description) of each fault.
    """
    before = None
    for bucket in buckets:
        if bucket.marker.previous != before:
            yield (
                bucket.path,
                f"its marker refers to {bucket.marker.previous}, but the preceding bucket is {before}",
            )
        before = MarkerLink(hour=bucket.hour, blake2b=bucket.blake2b)
    for last, bucket in itertools.pairwise(buckets):
        if bucket.start_ms != last.end_ms and not _may_precede_skipped_hours(last.marker):
            yield (
                bucket.path,
                f"does not start at the end of the preceding bucket {last.path}",
            )
        if (
            bucket.marker.ledger == last.marker.ledger
            and bucket.marker.ledger_commit < last.marker.ledger_commit
        ):
            yield bucket.path, "its ledger commit is lower than that of the preceding bucket"
    ledgers = [
        ledger for ledger, _ in itertools.groupby(bucket.marker.ledger for bucket in buckets)
    ]
    if len({*ledgers}) < len(ledgers):
        yield buckets[-1].path, f"the ledgers alternate: {', '.join(ledgers)}"


def _may_precede_skipped_hours(marker: Marker) -> bool:
    books = marker.books.values()
    return marker.grade != "proved" or any(book.rows or book.promised for book in books)


def find_offset_faults(buckets: Sequence[StoredBucket]) -> Iterator[tuple[str, str]]:
    """Check that the Kafka offsets in the `_SUCCESS` files of an event type are consistent.

    An offset is inconsistent if its topic does not contain events of the type, or if it is lower
    than in the preceding bucket. Two changes are accepted only in a bucket that was closed without
    complete evidence (`evidence.waived` is not empty): a topic that was deleted and created again,
    and lower offsets of the audit topic.

    Args:
        buckets: All closed buckets of one type, sorted by time.

    Yields:
        (bucket path, description) of each inconsistency.
    """
    for bucket in buckets:
        for topic in sorted({o.topic for o in bucket.marker.offsets}):
            if not f".{topic}".endswith(f".events.{bucket.type}"):
                yield (
                    bucket.path,
                    f"its offsets are of topic {topic}, which is not a topic of its type",
                )
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
                            f"topic {o.topic} has id {o.topic_id}, in the preceding bucket "
                            f"{earlier.topic_id}, and no condition is waived"
                        ),
                    )
            elif o.next < earlier.next:
                yield (
                    bucket.path,
                    f"the offset of {o.topic}-{o.partition} decreases from {earlier.next} to {o.next}",
                )
        audit = last.marker.evidence.audit_next
        for partition, next_offset in bucket.marker.evidence.audit_next.items():
            if next_offset < audit.get(partition, 0) and not bucket.marker.evidence.waived:
                yield (
                    bucket.path,
                    (
                        f"the audit offset of {partition} decreases from {audit[partition]} to "
                        f"{next_offset}, and no condition is waived"
                    ),
                )


def find_balance_faults(buckets: Sequence[StoredBucket]) -> Iterator[tuple[str, str]]:
    """Check that the counts in the `_SUCCESS` files of an event type are plausible.

    The buckets up to any bucket must not contain more events than there are Kafka records below
    the offsets of this bucket. If all buckets are `proved` (verified to be complete), two more
    conditions apply to the sums over all buckets, for each hour of the event time:

    - `events` is at most `promised` plus `unaudited`: the events with and without an audit record.
    - `promised` is at most `rows`, the number of records read from Kafka.

    Args:
        buckets: All closed buckets of one type, sorted by time.

    Yields:
        (bucket path, description) of each fault.
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
                    f"{events} events up to this bucket, but its offsets allow at most "
                    f"{next_offset.total()} records"
                ),
            )
        for hour, book in bucket.marker.books.items():
            books[hour].update(book.model_dump())
    if all(bucket.marker.grade == "proved" for bucket in buckets):
        for hour, counts in books.items():
            if (
                counts["events"] > counts["promised"] + counts["unaudited"]
                or counts["promised"] > counts["rows"]
            ):
                yield (
                    buckets[-1].path,
                    (f"the counts of hour {hour} over all buckets do not add up: {dict(counts)}"),
                )


# The largest assumed difference between the clocks of two servers.
_CLOCK_SKEW_MS: Final = 5_000


def find_destroyed_event_faults(
    destroyed: Sequence[DestroyedEvent], buckets: Sequence[StoredBucket]
) -> Iterator[tuple[FindingKind, str, str]]:
    """Check that the `_SUCCESS` files admit the loss of events that a test destroyed in Kafka.

    Two kinds of faults are reported:

    - `FALSE_PROOF`: A bucket has the grade `proved` (verified to be complete), although an event of
      its interval or an earlier one was destroyed. Events that were written after the bucket's end
      offsets in Kafka were determined (`evidence.cut_at_ms`) are ignored, with a tolerance of five
      seconds for clock differences.
    - `MANIFEST`: The `_SUCCESS` files of an event type report fewer missing events than were
      destroyed.

    Args:
        destroyed: Destroyed events that are in no bucket.
        buckets: All closed buckets, in any order.

    Yields:
        (kind, path, description) of each finding. The path is that of the bucket for `FALSE_PROOF`,
        and the name of the event type for `MANIFEST`.
    """
    by_type: defaultdict[str, list[StoredBucket]] = defaultdict(list)
    for bucket in sorted(buckets, key=lambda bucket: bucket.start_ms):
        by_type[bucket.type].append(bucket)
    for event in destroyed:
        affected = (bucket for bucket in by_type[event.type] if bucket.end_ms > event.time_ms)
        cut_after_write = (
            bucket for bucket in affected if _cut_ms(bucket) > event.written_ms - _CLOCK_SKEW_MS
        )
        leading_proved = itertools.takewhile(
            lambda bucket: bucket.marker.grade == "proved", cut_after_write
        )
        false = next(
            (b for b in leading_proved if _cut_ms(b) > event.written_ms + _CLOCK_SKEW_MS), None
        )
        if false is not None:
            cut = f"its cut was at {_cut_ms(false)} ms"
            detail = (
                f"proved without event {event.event_id}, which was written at {event.written_ms} "
                f"ms; {cut}"
            )
            yield FindingKind.FALSE_PROOF, false.path, detail
    for event_type, count in sorted(Counter(event.type for event in destroyed).items()):
        missing = sum(map(_missing_events, by_type[event_type]))
        if missing < count:
            detail = f"its markers account for {missing} missing events, but {count} were destroyed"
            yield FindingKind.MANIFEST, event_type, detail


def _cut_ms(bucket: StoredBucket) -> int:
    return bucket.marker.evidence.cut_at_ms


def _missing_events(bucket: StoredBucket) -> int:
    books = bucket.marker.books.values()
    return sum(book.promised + book.unaudited for book in books) - bucket.marker.events
