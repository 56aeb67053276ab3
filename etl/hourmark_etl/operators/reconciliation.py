"""The books: per type and origin hour, what was promised and what became of it. Pure arithmetic.

The rows of an origin hour are staged; a freeze lists each for one bucket: its own hour's, or a
later one's as late. A bucket's events are its listed rows less the duplicates removed. So for each
bucket, and added up for each origin hour,

    staged = closed + open + duplicates removed

and, where promises are settled (their bucket is closed), each event in a closed bucket was promised
or is named as unaudited rows, and each promised event was staged, unless a bucket was closed
without it (timed_out, forced), and says so:

    closed <= promised + unaudited          settled promises <= closed + duplicates removed + waived

These are inequalities because an event may be promised by two ranges (a lost checkpoint), and be
staged twice (a lost acknowledgement). Duplicates can hide a loss from counts, never from the proof,
which compares ids; `book_ranges` does so too.
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

UNLISTED: Final = None  # rows that no freeze has listed yet
_NOTHING: Final = HourTotals(rows=0, events=0, promised=0, unaudited=0)


class Stage(enum.StrEnum):
    """Where on the way a difference arose."""

    STAGING = "staging"  # staged files and the ledger's groups
    LISTING = "listing"  # groups and the buckets they are listed for
    PROOF = "proof"  # promises and what closed buckets hold
    WRITING = "writing"  # what a bucket took in and what it holds
    ARRIVAL = "arrival"  # promises that the last proof did not find kept


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that does not add up. `hour`: the origin hour, or the bucket's where it concerns a
    whole bucket.
    """

    event_type: str
    hour: str
    stage: Stage
    detail: str
    ranges: tuple[str, ...] = ()  # with their hosts, where they can be named

    def __str__(self) -> str:
        return "\n    ".join(
            (f"{self.event_type} {self.hour} [{self.stage}] {self.detail}", *self.ranges)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketFacts:
    """What a manifest says. `entries` by origin hour (Unix seconds).

    `promised`: events of the audit records that it settles, of all hours; where the proof went by
    sums, a range that was retried counts each time, as its rows do.
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

    def events_of(self, origin_s: int) -> int:
        """Of this origin hour."""
        return (
            self.events - sum(self.late.values())
            if origin_s == self.hour_s
            else self.late.get(origin_s, 0)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Promised:
    """By the audit records that the ledger still knows, of one origin hour; retries of one counted
    each time.
    """

    settled: int
    unsettled: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TypeFacts:
    """All that is known of one type. `listed`: rows of groups in the ledger, by (bucket's hour or
    UNLISTED, origin hour).
    """

    event_type: str
    length_s: int
    frontier_s: int
    settled_next: AuditOffsets  # promises below, of closed hours, are settled
    alarm: tuple[str, ...]
    listed: Mapping[tuple[int | None, int], int]
    promised: Mapping[int, Promised]
    buckets: Mapping[int, BucketFacts]
    set_aside: Mapping[int | None, int] = dataclasses.field(
        default_factory=dict
    )  # records, by the bucket that counts them


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HourAccount:
    """One origin hour of one type. Counts of rows, but for `closed`, `late` (of `closed`),
    `promised`, `unaudited`: of events.

    `set_aside`: records of the type, of whatever time, that this hour's bucket counts, or the next
    to close will.

    `waived` is what at least is missing of promises that a bucket was closed without; `on_its_way`
    what at least is promised and not staged yet.
    """

    event_type: str
    hour: str
    state: str  # "open", or the grade of its bucket
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
class Books:
    """Of one type: its hours in turn, and what does not add up."""

    hours: tuple[HourAccount, ...]
    differences: tuple[Difference, ...]


def books_of(facts: TypeFacts, origins_s: Collection[int]) -> Books:
    """The books of these origin hours; all buckets that `facts` has are checked."""
    found: list[HourAccount] = []
    differences = [d for bucket in facts.buckets.values() for d in _check_bucket(facts, bucket)]
    differences += _check_listing(facts)
    for origin_s in sorted(origins_s):
        book = _hour(facts, origin_s)
        found.append(book)
        differences += _check_promises(facts, origin_s, book)
    return Books(tuple(found), tuple(differences))


def total(books: Collection[HourAccount]) -> dict[str, int]:
    """Counts of all hours added up."""
    names = [
        f.name
        for f in dataclasses.fields(HourAccount)
        if f.name not in ("event_type", "hour", "state")
    ]
    return {name: sum(getattr(book, name) for book in books) for name in names}


def _hour(facts: TypeFacts, origin_s: int) -> HourAccount:
    taken = closed = late = unaudited = settled = 0
    for bucket in facts.buckets.values():
        events, entry = bucket.events_of(origin_s), bucket.entries.get(origin_s, _NOTHING)
        closed += events
        late += events if bucket.hour_s != origin_s else 0
        taken += entry.rows
        unaudited += entry.unaudited
        settled += entry.promised
    waiting = sum(
        rows
        for (listed_s, origin), rows in facts.listed.items()
        if origin == origin_s and _is_open(facts, listed_s)
    )
    by_ledger = facts.promised.get(origin_s, Promised(0, 0))
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
        waived=min(missing, settled) if own is not None and waives(facts, origin_s) else 0,
        on_its_way=missing if own is None else min(missing, by_ledger.unsettled),
        set_aside=own.set_aside if own is not None else _not_closed(facts, origin_s),
    )


def _not_closed(facts: TypeFacts, origin_s: int) -> int:
    unlisted = facts.set_aside.get(UNLISTED, 0) if origin_s == facts.frontier_s else 0
    return facts.set_aside.get(origin_s, 0) + unlisted


def _is_open(facts: TypeFacts, listed_s: int | None) -> bool:
    return listed_s is UNLISTED or listed_s >= facts.frontier_s


def waives(facts: TypeFacts, origin_s: int) -> bool:
    """Whether a bucket that may have settled promises of this hour was closed without some."""
    return any(b.grade is not Grade.PROVED for b in facts.buckets.values() if b.hour_s >= origin_s)


def _check_bucket(facts: TypeFacts, bucket: BucketFacts) -> Iterator[Difference]:
    differs = functools.partial(difference, facts, bucket.hour_s)
    if bucket.file_records != bucket.events:
        yield differs(
            Stage.WRITING,
            f"its files hold {bucket.file_records} events, its manifest says {bucket.events}",
        )
    entries = bucket.entries.values()
    rows = sum(entry.rows for entry in entries)
    if rows != bucket.events + bucket.duplicates_removed + bucket.left_out:
        accounted = f"{bucket.events} events and {bucket.duplicates_removed} duplicates removed"
        accounted += f" and {bucket.left_out} rows left out" if bucket.left_out else ""
        yield differs(Stage.WRITING, f"it took in {rows} rows, but accounts for {accounted}")
    for what, said, summed in (
        ("promised events", bucket.promised, sum(entry.promised for entry in entries)),
        ("unaudited events", bucket.unaudited, sum(entry.unaudited for entry in entries)),
    ):
        if said != summed:
            yield differs(
                Stage.WRITING, f"its evidence speaks of {said} {what}, its books of {summed}"
            )
    if (
        aside := facts.set_aside.get(bucket.hour_s, 0)
    ) > bucket.set_aside:  # fewer: old rows are deleted
        counts = (
            f"the ledger counts {aside} records that were set aside for it, its manifest "
            f"{bucket.set_aside}"
        )
        yield differs(Stage.STAGING, counts)
    for origin_s in sorted({*bucket.entries, *bucket.late, bucket.hour_s}):
        entry, events, origin = (
            bucket.entries.get(origin_s, _NOTHING),
            bucket.events_of(origin_s),
            _label(facts, origin_s),
        )
        if entry.events != events:
            yield differs(
                Stage.WRITING,
                f"by its books {entry.events} events of {origin} are in it, by its late "
                f"counts {events}",
            )
        if entry.events > entry.rows:
            yield differs(
                Stage.WRITING,
                f"{entry.events} events of {origin} are in it, from {entry.rows} rows only",
            )
        by_ledger = facts.listed.get((bucket.hour_s, origin_s), 0)
        if by_ledger > entry.rows:  # fewer: staged files are cleaned away
            yield differs(
                Stage.LISTING,
                f"the ledger lists {by_ledger} rows of {origin} for it, it took in {entry.rows}",
            )


def _check_listing(facts: TypeFacts) -> Iterator[Difference]:
    """Rows listed for a bucket that is neither closed nor being closed are in no bucket."""
    for (listed_s, origin_s), rows in sorted(
        facts.listed.items(), key=lambda item: (item[0][1], item[0][0] or 0)
    ):
        if listed_s is UNLISTED or _is_open(facts, listed_s) or listed_s in facts.buckets:
            continue
        listed = f"{rows} rows are listed for the bucket {_label(facts, listed_s)}"
        yield difference(
            facts,
            origin_s,
            Stage.LISTING,
            f"{listed}, which the ledger has gone past and not closed",
        )


def _check_promises(facts: TypeFacts, origin_s: int, book: HourAccount) -> Iterator[Difference]:
    differs = functools.partial(difference, facts, origin_s)
    if origin_s not in facts.buckets:
        if book.on_its_way and facts.alarm and origin_s == facts.frontier_s:
            staged = f"{book.promised} events are promised, {book.staged} rows are staged"
            yield differs(Stage.ARRIVAL, f"{staged}, and the last proof failed")
        return
    settled = book.promised - facts.promised.get(origin_s, Promised(0, 0)).unsettled
    taken = book.closed + book.duplicates_removed
    if settled > taken and not waives(facts, origin_s):
        kept = f"{settled} events are promised and settled, buckets took in {taken} rows only"
        yield differs(Stage.PROOF, f"{kept}, and none waives what is missing")
    if book.closed > book.promised + book.unaudited:
        named = f"{book.promised} are promised and {book.unaudited} named as unaudited"
        yield differs(Stage.PROOF, f"{book.closed} events are in closed buckets, {named}")


def difference(facts: TypeFacts, hour_s: int, stage: Stage, detail: str) -> Difference:
    """Of the type's books of this hour."""
    return Difference(
        event_type=facts.event_type, hour=_label(facts, hour_s), stage=stage, detail=detail
    )


def _label(facts: TypeFacts, hour_s: int) -> str:
    return str(Hour(hour_s, facts.length_s))
