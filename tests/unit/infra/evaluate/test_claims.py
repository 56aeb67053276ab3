"""What the mirror claims, against what the target holds: a false claim is seen once and for all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hourmark.kafka import Partition
from hourmark_infra.evaluate.mirror_watch import asked
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


@given(st.dictionaries(st.sampled_from([A, B]), st.integers(0, 100)), st.integers(0, 9))
def test_who_claims_no_more_than_is_held_claims_nothing_false(held: dict[Partition, int], less: int) -> None:
    assert asked(NONE, {p: max(0, n - less) for p, n in held.items()}, held, 0).false_records == 0
