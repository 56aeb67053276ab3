"""The books: random histories of deliveries and closings always add up, and any difference planted
in them is told.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade, HourTotals
from hourmark_etl.model import AuditOffsets
from hourmark_etl.operators.reconciliation import (
    UNLISTED,
    BucketCounts,
    PromisedCounts,
    ReconciliationStage,
    TypeFacts,
    TypeReconciliation,
    reconcile_type,
    sum_accounts,
)

LENGTH = 3600
FIRST = 1_800_000_000
HOURS = 4


def at(hour: int) -> int:
    return FIRST + hour * LENGTH


@dataclasses.dataclass(kw_only=True)
class History:
    """One type, by the rule of closing in its plainest form: ids are numbers, and everything is
    kept.
    """

    rows: list[tuple[int, int, int, int | None]] = dataclasses.field(
        default_factory=list
    )  # (hour, id, range, listed)
    audits: list[tuple[int, int, int]] = dataclasses.field(
        default_factory=list
    )  # (range, hour, count), in the topic's order
    closed: dict[int, BucketCounts] = dataclasses.field(default_factory=dict)
    frontier: int = 0
    settled_next: int = 0

    def deliver(self, range_id: int, events: list[tuple[int, int]], *, audited: bool) -> None:
        self.rows += [(hour, event, range_id, None) for hour, event in events]
        if audited:
            for hour, count in Counter(hour for hour, _ in set(events)).items():
                self.audits.append((range_id, hour, count))

    def close(self) -> None:
        """List, prove, remove duplicates, publish."""
        h = self.frontier
        listed = [r for r in self.rows if r[3] is None and r[0] <= h]
        before = {event for _, event, _, bucket in self.rows if bucket is not None}
        taken = {(hour, event) for hour, event, _, _ in listed if event not in before}
        known = {(r, hour) for r, hour, _ in self.audits}
        old = {(r, hour) for r, hour, _ in self.audits[: self.settled_next] if hour < h}
        promised: Counter[int] = Counter()
        for r, hour, count in {*self.audits}:
            if hour <= h and (r, hour) not in old:
                promised[hour] += count
        earlier = {(r, event) for _, event, r, bucket in self.rows if bucket is not None}
        unaudited = Counter(
            hour
            for hour, event, r in {x[:3] for x in listed}
            if (r, hour) not in known and (r, event) not in earlier
        )
        origins = {r[0] for r in listed} | set(promised)
        entries = {
            at(o): HourTotals(
                rows=sum(r[0] == o for r in listed),
                events=sum(hour == o for hour, _ in taken),
                promised=promised[o],
                unaudited=unaudited[o],
            )
            for o in origins
        }
        late = {at(o): n for o, n in Counter(hour for hour, _ in taken).items() if o < h}
        self.closed[at(h)] = BucketCounts(
            hour_s=at(h),
            grade=Grade.PROVED,
            events=len(taken),
            file_records=len(taken),
            late=late,
            duplicates_removed=len(listed) - len(taken),
            promised=sum(promised.values()),
            unaudited=sum(unaudited.values()),
            entries=entries,
        )
        self.rows = [(*r[:3], h) if r in listed and r[3] is None else r for r in self.rows]
        self.frontier, self.settled_next = h + 1, len(self.audits)

    def facts(self, *, cleaned: bool = False) -> TypeFacts:
        listed: Counter[tuple[int | None, int]] = Counter()
        for hour, _, _, bucket in self.rows:
            if bucket is None or not cleaned:
                listed[UNLISTED if bucket is None else at(bucket), at(hour)] += 1
        sums = {at(h): [0, 0] for _, h, _ in self.audits}
        for n, (_, hour, count) in enumerate(self.audits):
            sums[at(hour)][0 if n < self.settled_next and hour < self.frontier else 1] += count
        promised = {hour: PromisedCounts(*both) for hour, both in sums.items()}
        return TypeFacts(
            event_type="click",
            bucket_seconds=LENGTH,
            oldest_open_s=at(self.frontier),
            settled_below=AuditOffsets.from_offsets(self.settled_next),
            proof_errors=(),
            staged_rows=dict(listed),
            promised=promised,
            buckets=dict(self.closed),
        )

    def books(self, *, cleaned: bool = False) -> TypeReconciliation:
        return reconcile_type(self.facts(cleaned=cleaned), [at(h) for h in range(HOURS)])


events = st.lists(
    st.tuples(st.integers(0, HOURS - 1), st.integers(0, 5)), min_size=1, max_size=6
).map(lambda found: [(hour, 10 * hour + event) for hour, event in found])
deliveries = st.tuples(st.integers(0, 4), st.booleans())
steps = st.lists(deliveries | st.just("close"), max_size=12)


def run(ranges: list[list[tuple[int, int]]], taken: list[tuple[int, bool] | str]) -> History:
    history = History()
    for step in taken:
        if not isinstance(step, str):
            history.deliver(step[0], ranges[step[0]], audited=step[1])
        elif history.frontier < HOURS:
            history.close()
    return history


@given(st.lists(events, min_size=5, max_size=5), steps, st.booleans())
def test_every_history_adds_up(
    ranges: list[list[tuple[int, int]]], taken: list[tuple[int, bool] | str], cleaned: bool
) -> None:
    history = run(ranges, taken)
    books = history.books(cleaned=cleaned)
    assert books.differences == ()
    for hour, book in enumerate(books.hours):
        assert (
            book.staged
            == book.closed + book.open + book.duplicates_removed
            == sum(r[0] == hour for r in history.rows)
        )
        assert book.open == sum(r[0] == hour and r[3] is None for r in history.rows)
        assert book.closed == len({r[1] for r in history.rows if r[0] == hour and r[3] is not None})
        assert book.late == sum(b.late.get(at(hour), 0) for b in history.closed.values())
        assert (book.state == "open") == (hour >= history.frontier)
        assert book.waived == 0
    assert sum_accounts(books.hours)["staged"] == len(history.rows)


def example() -> History:
    """Range 1 twice, range 2 without its audit record, range 3 late; two hours closed, the third
    open.
    """
    history = History()
    for _ in range(2):
        history.deliver(1, [(0, 1), (0, 2), (0, 3)], audited=True)
    history.deliver(2, [(0, 4)], audited=False)
    history.close()
    history.deliver(3, [(0, 5), (1, 6), (1, 7)], audited=True)
    history.close()
    history.deliver(4, [(2, 8), (0, 9)], audited=True)
    return history


def test_a_history_is_told_hour_by_hour() -> None:
    first, second, third, _ = example().books().hours
    assert (first.promised, first.staged, first.closed, first.late, first.open) == (5, 9, 5, 1, 1)
    assert (first.duplicates_removed, first.unaudited, first.state) == (3, 1, "proved")
    assert (second.promised, second.staged, second.closed) == (2, 2, 2)
    assert (third.promised, third.staged, third.open, third.state) == (1, 1, 1, "open")


def bucket(facts: TypeFacts, hour: int, **changes: object) -> TypeFacts:
    changed = dataclasses.replace(facts.buckets[at(hour)], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(facts, buckets={**facts.buckets, at(hour): changed})


def entry(facts: TypeFacts, hour: int, origin: int, **changes: int) -> TypeFacts:
    """Another entry, in a manifest that agrees with it."""
    entries = facts.buckets[at(hour)].entries
    changed = {**entries, at(origin): entries[at(origin)].model_copy(update=changes)}
    promised, unaudited = (
        sum(e.promised for e in changed.values()),
        sum(e.unaudited for e in changed.values()),
    )
    return bucket(facts, hour, entries=changed, promised=promised, unaudited=unaudited)


def listed(facts: TypeFacts, key: tuple[int | None, int], rows: int) -> TypeFacts:
    return dataclasses.replace(facts, staged_rows={**facts.staged_rows, key: rows})


PLANTED: list[tuple[str, Callable[[TypeFacts], TypeFacts], ReconciliationStage]] = [
    (
        "an event is missing in the files",
        lambda f: bucket(f, 0, file_records=3),
        ReconciliationStage.WRITING,
    ),
    (
        "an event too many was removed",
        lambda f: bucket(f, 0, duplicates_removed=4),
        ReconciliationStage.WRITING,
    ),
    (
        "an event is missing in a bucket",
        lambda f: bucket(f, 0, events=3, file_records=3),
        ReconciliationStage.WRITING,
    ),
    ("a late event is not told", lambda f: bucket(f, 1, late={}), ReconciliationStage.WRITING),
    (
        "a late event is of another hour",
        lambda f: bucket(f, 1, late={at(1): 1}),
        ReconciliationStage.WRITING,
    ),
    ("evidence and books differ", lambda f: bucket(f, 0, promised=99), ReconciliationStage.WRITING),
    (
        "unaudited and books differ",
        lambda f: bucket(f, 0, unaudited=0),
        ReconciliationStage.WRITING,
    ),
    ("more events than rows", lambda f: entry(f, 1, 0, rows=0), ReconciliationStage.WRITING),
    (
        "rows were listed after the seal",
        lambda f: listed(f, (at(0), at(0)), 8),
        ReconciliationStage.LISTING,
    ),
    (
        "a closed bucket is unknown",
        lambda f: dataclasses.replace(f, buckets={at(1): f.buckets[at(1)]}),
        ReconciliationStage.LISTING,
    ),
    ("a promise was called kept", lambda f: entry(f, 0, 0, promised=9), ReconciliationStage.PROOF),
    ("an event of nobody", lambda f: entry(f, 1, 1, promised=1), ReconciliationStage.PROOF),
    (
        "unaudited is not named",
        lambda f: entry(entry(f, 0, 0, unaudited=0), 1, 0, promised=0),
        ReconciliationStage.PROOF,
    ),
]


@pytest.mark.parametrize(("plant", "stage"), [p[1:] for p in PLANTED], ids=[p[0] for p in PLANTED])
def test_a_difference_that_is_planted_names_its_stage(
    plant: Callable[[TypeFacts], TypeFacts], stage: ReconciliationStage
) -> None:
    facts = plant(example().facts())
    books = reconcile_type(facts, [at(h) for h in range(HOURS)])
    assert stage in {d.stage for d in books.differences}, [str(d) for d in books.differences]


@given(st.lists(events, min_size=5, max_size=5), steps, st.data())
def test_a_row_lost_between_taking_in_and_writing_is_always_told(
    ranges: list[list[tuple[int, int]]], taken: list[tuple[int, bool] | str], data: st.DataObject
) -> None:
    facts = run(ranges, taken).facts()
    filled = sorted(h for h, b in facts.buckets.items() if b.events)
    if not filled:
        return
    hour = (data.draw(st.sampled_from(filled)) - FIRST) // LENGTH
    events_in = facts.buckets[at(hour)].events
    lost = bucket(facts, hour, events=events_in - 1, file_records=events_in - 1)
    assert reconcile_type(lost, [at(h) for h in range(HOURS)]).differences


def test_what_a_bucket_was_closed_without_is_waived_and_no_difference() -> None:
    facts = entry(example().facts(), 0, 0, promised=9)
    books = reconcile_type(bucket(facts, 0, grade=Grade.TIMED_OUT), [at(0)])
    assert books.differences == ()
    assert books.hours[0].waived == 2  # nine and one late are promised, seven and one rows came
    assert books.hours[0].state == "timed_out"


def test_promises_of_an_open_hour_are_on_their_way_unless_the_last_proof_failed() -> None:
    facts = example().facts()
    facts = dataclasses.replace(facts, promised={**facts.promised, at(2): PromisedCounts(0, 5)})
    assert reconcile_type(facts, [at(2)]).hours[0].on_its_way == 4
    assert reconcile_type(facts, [at(2)]).differences == ()
    (difference,) = reconcile_type(
        dataclasses.replace(facts, proof_errors=("range …",)), [at(2)]
    ).differences
    assert difference.stage is ReconciliationStage.ARRIVAL and difference.hour == str(
        Hour(at(2), LENGTH)
    )
