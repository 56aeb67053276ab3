"""Reconciliation: per type and origin hour, compares what was promised with what was stored. Pure.

The origin hour of an event is the hour of its timestamp. The rows of events are staged, and a
freeze assigns each row to one bucket: the bucket of its origin hour or, for a late event, a later
one. A bucket contains its assigned rows except removed duplicates. So for each bucket, and summed
for each origin hour,

    staged = closed + open + duplicates removed

Promises are settled when their bucket is closed. Then each event in a closed bucket was promised or
is counted as unaudited, and each promised event was staged, unless a bucket was closed without it
(`timed_out`, `forced`) and its manifest states this:

    closed <= promised + unaudited          settled promises <= closed + duplicates removed + waived

These are inequalities because an event may be promised by two ranges (a lost checkpoint), and may
be staged twice (a lost acknowledgement). Duplicates can hide a loss from counts, but not from the
proof, which compares ids, and not from `reconciled_ranges`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade, HourTotals
from hourmark_etl.model import AuditOffsets

UNLISTED: Final = None  # key of rows that no freeze has listed yet
_NOTHING: Final = HourTotals(rows=0, events=0, promised=0, unaudited=0)


class ReconciliationStage(enum.StrEnum):
    """Pipeline stage at which two counts of the same events differ.

    The value of each member is the name that `hourmark audit` prints, such as `staging`. A group
    contains the rows of one event type and hour in one staged file, which holds copies of Kafka
    records. Audit records promise a number of events for each byte range of a log file.

    Attributes:
        STAGING: The row count of a staged file differs from the total of its groups.
        LISTING: The groups that are assigned to a bucket differ from the rows that it received.
        PROOF: The promised events differ from the events in closed buckets.
        WRITING: The counts in the manifest of a bucket contradict each other.
        ARRIVAL: Promised events had not arrived at the last check.
    """

    STAGING = "staging"  # staged files and the ledger's groups
    LISTING = "listing"  # groups and the buckets that they are listed for
    PROOF = "proof"  # promises and the contents of closed buckets
    WRITING = "writing"  # the rows that a bucket received and the events that it contains
    ARRIVAL = "arrival"  # promises that were not kept at the last proof


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CountDifference:
    """Difference between two counts of events that should be equal.

    Attributes:
        event_type: Name of the event type.
        hour: Hour of the events as text; the bucket's hour if the whole bucket is affected.
        stage: Pipeline stage at which the counts differ.
        detail: Human-readable description of the difference.
        ranges: Human-readable lines about the affected byte ranges of log files; empty if they are
            unknown.
    """

    event_type: str
    hour: str
    stage: ReconciliationStage
    detail: str
    ranges: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join(
            (f"{self.event_type} {self.hour} [{self.stage}] {self.detail}", *self.ranges)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketCounts:
    """Counts of events in the manifest of one closed bucket.

    Attributes:
        hour_s: Unix seconds at the start of the bucket's hour.
        grade: Grade of the bucket: whether the events were proved to be complete.
        events: Number of events.
        file_records: Sum of the record counts of the bucket's files.
        late: Number of late events, by the hour of their timestamps in Unix seconds. A late event
            belongs to an earlier hour than the bucket.
        duplicates_removed: Number of duplicate rows that were dropped.
        promised: Number of events, of all hours, in the audit records with which this bucket was
            compared. An audit record states ("promises") the number of events of one byte range of
            a log file. A byte range that was retried may count once per retry.
        unaudited: Number of events that no audit record promises.
        entries: Numbers of staged rows and of closed, promised and unaudited events, by the hour of
            the event timestamps in Unix seconds.
        set_aside: Number of records counted by this bucket that could not be stored in any bucket.
        left_out: Number of staged rows that could not be written to the bucket.
    """

    hour_s: int
    grade: Grade
    events: int
    file_records: int
    late: Mapping[int, int]
    duplicates_removed: int
    promised: int
    unaudited: int
    entries: Mapping[int, HourTotals]
    set_aside: int = 0
    left_out: int = 0

    def events_of_hour(self, origin_s: int) -> int:
        """Return the number of events in the bucket whose timestamps are in the given hour.

        Args:
            origin_s: Unix seconds at the start of the hour. It is the bucket's own hour, or the
                earlier hour of late events.

        Returns:
            The number of events; 0 if the bucket has none of that hour.
        """
        return (
            self.events - sum(self.late.values())
            if origin_s == self.hour_s
            else self.late.get(origin_s, 0)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class PromisedCounts:
    """Number of events that audit records count for one hour of event time.

    An audit record confirms the delivery of a byte range of a log file and states the number of its
    events. A range that was retried may be counted once per retry.

    Attributes:
        settled: Promised events whose audit records were compared with a closed bucket.
        unsettled: Promised events whose audit records have not been compared with a closed bucket.
    """

    settled: int
    unsettled: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TypeFacts:
    """Input of a reconciliation: all counts about one event type from the ledger.

    The ledger is the state database of the ETL. Hours are in Unix seconds at their starts. The
    origin hour is the hour of an event's timestamp. A staged row is an event that was read from
    Kafka. A promised event is one that the audit record of an acknowledged byte range counts.

    Attributes:
        event_type: Name of the event type.
        bucket_seconds: Length of a bucket in seconds.
        oldest_open_s: Oldest hour whose bucket is not closed.
        settled_below: Exclusive end offsets of the audit topics, by site (edge cluster). Audit
            records below these offsets were compared with the closed buckets of their hours.
        proof_errors: Human-readable errors of the last check that all promised events are present;
            empty if it succeeded.
        staged_rows: Number of rows in staged files, by pair of bucket and origin hour. The bucket
            is `UNLISTED` for rows that are not assigned to a bucket yet.
        promised: Number of promised events, by origin hour.
        buckets: Counts of each closed bucket, by hour.
        set_aside: Number of records that cannot be stored in a bucket, by the bucket that counts
            them. The key is `UNLISTED` for records that no bucket counts yet.
    """

    event_type: str
    bucket_seconds: int
    oldest_open_s: int
    settled_below: AuditOffsets
    proof_errors: tuple[str, ...]
    staged_rows: Mapping[tuple[int | None, int], int]
    promised: Mapping[int, PromisedCounts]
    buckets: Mapping[int, BucketCounts]
    set_aside: Mapping[int | None, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HourAccount:
    """Numbers of promised, staged and closed events of one event type and hour.

    Events are counted in the hour of their timestamps. All counts are numbers of events unless
    stated otherwise.

    Attributes:
        event_type: The event type.
        hour: Hour as text.
        state: "open", or the grade of the hour's bucket: `proved` (complete), `timed_out` or
            `forced`.
        promised: Events that audit records count.
        staged: Rows that were read from Kafka into staged files, including duplicates.
        closed: Events in closed buckets.
        late: Events among `closed` that are in the bucket of a later hour.
        open: Staged rows that are not in a closed bucket yet.
        duplicates_removed: Rows that were dropped as duplicates.
        unaudited: Events in closed buckets that are not listed in any audit record.
        waived: Minimum number of promised events that were missing when a bucket was closed.
        on_its_way: Minimum number of promised events that have not been staged yet but may still
            arrive.
        set_aside: Records of any time that could not be stored in a bucket and are counted by this
            hour's bucket. The oldest open hour has the records that no bucket counts yet.
    """

    event_type: str
    hour: str
    state: str
    promised: int
    staged: int
    closed: int
    late: int
    open: int
    duplicates_removed: int
    unaudited: int
    waived: int
    on_its_way: int
    set_aside: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class TypeReconciliation:
    """Result of comparing the promised, staged and closed events of one event type.

    A promised event is listed in an audit record, a staged event was read from Kafka, and a closed
    event is in a closed bucket.

    Attributes:
        hours: Counts of each hour of event time, in ascending order.
        differences: Differences between counts that should be equal; empty if there are none.
    """

    hours: tuple[HourAccount, ...]
    differences: tuple[CountDifference, ...]


def reconcile_type(type_facts: TypeFacts, origins_s: Collection[int]) -> TypeReconciliation:
    """Compare the promised, staged and closed events of one event type, and report differences.

    A promised event is listed in an audit record, a staged event was read from Kafka, and a closed
    event is in a closed bucket. All buckets in `type_facts` are checked, even if their hour is not
    in `origins_s`.

    Args:
        type_facts: All counts about the event type.
        origins_s: Hours whose counts are returned, as Unix seconds at their starts. Events are
            counted in the hour of their timestamps.

    Returns:
        The counts of each hour in ascending order, and all differences.
    """
    found: list[HourAccount] = []
    differences = [
        d for bucket in type_facts.buckets.values() for d in _check_bucket(type_facts, bucket)
    ]
    differences += _check_listing(type_facts)
    for origin_s in sorted(origins_s):
        book = _hour(type_facts, origin_s)
        found.append(book)
        differences += _check_promises(type_facts, origin_s, book)
    return TypeReconciliation(tuple(found), tuple(differences))


def sum_accounts(accounts: Collection[HourAccount]) -> dict[str, int]:
    """Add up the event counts of several hours and event types.

    Args:
        accounts: Counts of any number of hours, one item per event type and hour.

    Returns:
        Sums by field name of `HourAccount`, such as `promised` or `closed`. All sums are 0 if there
        are no accounts.
    """
    names = [
        f.name
        for f in dataclasses.fields(HourAccount)
        if f.name not in ("event_type", "hour", "state")
    ]
    return {name: sum(getattr(book, name) for book in accounts) for name in names}


def _hour(facts: TypeFacts, origin_s: int) -> HourAccount:
    taken = closed = late = unaudited = settled = 0
    for bucket in facts.buckets.values():
        events, entry = bucket.events_of_hour(origin_s), bucket.entries.get(origin_s, _NOTHING)
        closed += events
        late += events if bucket.hour_s != origin_s else 0
        taken += entry.rows
        unaudited += entry.unaudited
        settled += entry.promised
    waiting = sum(
        rows
        for (listed_s, origin), rows in facts.staged_rows.items()
        if origin == origin_s and _is_open(facts, listed_s)
    )
    by_ledger = facts.promised.get(origin_s, PromisedCounts(0, 0))
    settled = settled if origin_s in facts.buckets else by_ledger.settled
    missing = max(0, settled + by_ledger.unsettled - taken - waiting)
    own = facts.buckets.get(origin_s)
    return HourAccount(
        event_type=facts.event_type,
        hour=_label(facts, origin_s),
        state="open" if own is None else own.grade.value,
        promised=settled + by_ledger.unsettled,
        staged=taken + waiting,
        closed=closed,
        late=late,
        open=waiting,
        duplicates_removed=taken - closed,
        unaudited=unaudited,
        waived=min(missing, settled) if own is not None and may_have_waived(facts, origin_s) else 0,
        on_its_way=missing if own is None else min(missing, by_ledger.unsettled),
        set_aside=own.set_aside if own is not None else _not_closed(facts, origin_s),
    )


def _not_closed(facts: TypeFacts, origin_s: int) -> int:
    unlisted = facts.set_aside.get(UNLISTED, 0) if origin_s == facts.oldest_open_s else 0
    return facts.set_aside.get(origin_s, 0) + unlisted


def _is_open(facts: TypeFacts, listed_s: int | None) -> bool:
    return listed_s is UNLISTED or listed_s >= facts.oldest_open_s


def may_have_waived(type_facts: TypeFacts, origin_s: int) -> bool:
    """Return whether a bucket may have been closed without some of an hour's promised events.

    Promised events are those that audit records count. They may be missing from the bucket of their
    hour, or of any later hour, if it was closed with a grade other than `proved`.

    Args:
        type_facts: Counts about one event type from the ledger (the ETL's state database).
        origin_s: Unix seconds at the start of the hour.

    Returns:
        True if such a bucket exists. It may explain why events of the hour are missing.
    """
    return any(
        b.grade is not Grade.PROVED for b in type_facts.buckets.values() if b.hour_s >= origin_s
    )


def _check_bucket(facts: TypeFacts, bucket: BucketCounts) -> Iterator[CountDifference]:
    differs = functools.partial(make_difference, facts, bucket.hour_s)
    if bucket.file_records != bucket.events:
        yield differs(
            ReconciliationStage.WRITING,
            f"its files contain {bucket.file_records} events, but its manifest states "
            f"{bucket.events}",
        )
    entries = bucket.entries.values()
    rows = sum(entry.rows for entry in entries)
    if rows != bucket.events + bucket.duplicates_removed + bucket.left_out:
        accounted = f"{bucket.events} events and {bucket.duplicates_removed} duplicates removed"
        accounted += f" and {bucket.left_out} rows left out" if bucket.left_out else ""
        yield differs(
            ReconciliationStage.WRITING, f"it received {rows} rows, but accounts for {accounted}"
        )
    for what, said, summed in (
        ("promised events", bucket.promised, sum(entry.promised for entry in entries)),
        ("unaudited events", bucket.unaudited, sum(entry.unaudited for entry in entries)),
    ):
        if said != summed:
            yield differs(
                ReconciliationStage.WRITING,
                f"its evidence states {said} {what}, but the sum over its hours is {summed}",
            )
    if (
        aside := facts.set_aside.get(bucket.hour_s, 0)
    ) > bucket.set_aside:  # it may be smaller, because old rows are deleted
        counts = (
            f"the ledger counts {aside} records that were set aside for it, but its manifest "
            f"{bucket.set_aside}"
        )
        yield differs(ReconciliationStage.STAGING, counts)
    for origin_s in sorted({*bucket.entries, *bucket.late, bucket.hour_s}):
        entry, events, origin = (
            bucket.entries.get(origin_s, _NOTHING),
            bucket.events_of_hour(origin_s),
            _label(facts, origin_s),
        )
        if entry.events != events:
            yield differs(
                ReconciliationStage.WRITING,
                f"according to its counts by hour, it contains {entry.events} events of "
                f"{origin}; according to its counts of late events, {events}",
            )
        if entry.events > entry.rows:
            yield differs(
                ReconciliationStage.WRITING,
                f"it contains {entry.events} events of {origin}, but only {entry.rows} rows",
            )
        by_ledger = facts.staged_rows.get((bucket.hour_s, origin_s), 0)
        if by_ledger > entry.rows:  # it may be smaller, because staged files are deleted
            yield differs(
                ReconciliationStage.LISTING,
                f"the ledger lists {by_ledger} rows of {origin} for it, but it received "
                f"{entry.rows}",
            )


def _check_listing(facts: TypeFacts) -> Iterator[CountDifference]:
    # Rows that are listed for a bucket that is neither closed nor being closed are in no bucket.
    for (listed_s, origin_s), rows in sorted(
        facts.staged_rows.items(), key=lambda item: (item[0][1], item[0][0] or 0)
    ):
        if listed_s is UNLISTED or _is_open(facts, listed_s) or listed_s in facts.buckets:
            continue
        listed = f"{rows} rows are listed for the bucket {_label(facts, listed_s)}"
        yield make_difference(
            facts,
            origin_s,
            ReconciliationStage.LISTING,
            f"{listed}, which is not closed although later hours are",
        )


def _check_promises(
    facts: TypeFacts, origin_s: int, book: HourAccount
) -> Iterator[CountDifference]:
    differs = functools.partial(make_difference, facts, origin_s)
    if origin_s not in facts.buckets:
        if book.on_its_way and facts.proof_errors and origin_s == facts.oldest_open_s:
            staged = f"{book.promised} events are promised, {book.staged} rows are staged"
            yield differs(ReconciliationStage.ARRIVAL, f"{staged}, and the last proof failed")
        return
    settled = book.promised - facts.promised.get(origin_s, PromisedCounts(0, 0)).unsettled
    taken = book.closed + book.duplicates_removed
    if settled > taken and not may_have_waived(facts, origin_s):
        kept = f"{settled} events are promised and settled, but buckets received only {taken} rows"
        yield differs(ReconciliationStage.PROOF, f"{kept}, and no bucket waives the difference")
    if book.closed > book.promised + book.unaudited:
        named = f"but only {book.promised} are promised and {book.unaudited} recorded as unaudited"
        yield differs(
            ReconciliationStage.PROOF, f"{book.closed} events are in closed buckets, {named}"
        )


def make_difference(
    type_facts: TypeFacts, hour_s: int, stage: ReconciliationStage, detail: str
) -> CountDifference:
    """Create a `CountDifference` without information about the affected byte ranges.

    Args:
        type_facts: Counts about the event type; only the type and the bucket length are used.
        hour_s: Unix seconds at the start of the hour.
        stage: The stage at which the counts differ.
        detail: Human-readable description of the difference.

    Returns:
        A difference whose `ranges` is empty.
    """
    return CountDifference(
        event_type=type_facts.event_type,
        hour=_label(type_facts, hour_s),
        stage=stage,
        detail=detail,
    )


def _label(facts: TypeFacts, hour_s: int) -> str:
    return str(Hour(hour_s, facts.bucket_seconds))
