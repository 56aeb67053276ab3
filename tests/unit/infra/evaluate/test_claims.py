"""What the mirror claims, against what the target holds: a false claim is seen once and for all."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from hourmark.kafka import Partition
from hourmark_infra.evaluate.mirror_watch import Account, asked
from hourmark_infra.evaluate.results import Claims

NONE = Claims(samples=0, false_records=0, waiting_max=0)
A, B = Partition("edge.a", 0), Partition("edge.a", 1)


def test_a_claim_beyond_what_is_held_is_false_however_much_more_another_partition_holds() -> None:
    found = asked(NONE, {A: 10, B: 5}, {A: 7, B: 100}, 3)
    assert (found.samples, found.false_records, found.waiting_max) == (1, 3, 3)
    later = asked(found, {A: 10, B: 5}, {A: 10, B: 100}, 0)
    assert (later.samples, later.false_records, later.waiting_max) == (2, 3, 3), "once false stays told"


def test_a_claim_of_what_was_never_seen_on_the_target_is_false() -> None:
    assert asked(NONE, {A: 4}, {}, 4).false_records == 4


def test_who_claims_nothing_was_not_asked() -> None:
    assert asked(NONE, {}, {A: 4}, 0).samples == 0


def test_a_claim_is_told_once_the_transactions_are_over_that_were_under_way_when_it_was_made() -> None:
    account, held = Account(), {A: 4}
    account.ask({A: 10}, {A: 12}, held, 3)
    account.tell({A: 5}, lambda _: held)
    early = dataclasses.replace(NONE, early_max=6)
    assert account.claims == early, "a marker is on its way"
    held[A] = 10
    account.tell({A: 12}, lambda _: held)
    assert account.claims == dataclasses.replace(early, samples=1, waiting_max=3)


def test_what_came_after_a_claim_makes_it_no_truer() -> None:
    account, offsets = Account(), [0, 1, 2, 3, 20, 21, 22]
    account.ask({A: 6}, {A: 12}, {}, 0)
    account.tell({A: 30}, lambda ends: {A: sum(offset < ends[A] for offset in offsets)})
    assert account.claims.false_records == 2


def test_of_transactions_that_never_end_nothing_is_there() -> None:
    account = Account()
    account.ask({A: 10}, {A: 12}, {A: 4}, 0)
    account.tell({A: 4}, lambda _: {A: 4})
    account.settle(lambda _: {A: 4})
    assert account.claims.false_records == 6


@given(st.dictionaries(st.sampled_from([A, B]), st.integers(0, 100)), st.integers(0, 9))
def test_who_claims_no_more_than_is_held_claims_nothing_false(held: dict[Partition, int], less: int) -> None:
    assert asked(NONE, {p: max(0, n - less) for p, n in held.items()}, held, 0).false_records == 0
