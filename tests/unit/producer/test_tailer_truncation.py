"""What size and last bytes say about a file's past."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hourmark_producer.truncation import ANCHOR_BYTES, Judgement, Verdict, judge, next_anchor


def test_growing_is_no_truncation() -> None:
    assert judge(offset=50, size_seen=100, size=200, anchored=True) == Judgement(Verdict.SAME, 0)


def test_a_size_below_the_position_is_one_and_what_was_unread_is_lost() -> None:
    assert judge(offset=50, size_seen=100, size=49, anchored=False) == Judgement(Verdict.REPLACED, 50)


def test_other_bytes_before_the_position_are_one_whatever_the_size() -> None:
    assert judge(offset=50, size_seen=100, size=500, anchored=False) == Judgement(Verdict.REPLACED, 50)


def test_cut_off_behind_the_position_loses_only_the_difference() -> None:
    assert judge(offset=50, size_seen=100, size=60, anchored=True) == Judgement(Verdict.SHORTENED, 40)


@given(st.binary(max_size=ANCHOR_BYTES), st.lists(st.binary(max_size=600), max_size=5))
def test_the_anchor_is_the_last_bytes_read(before: bytes, bodies: list[bytes]) -> None:
    anchor = before
    for body in bodies:
        anchor = next_anchor(anchor, body)
    assert anchor == (before + b"".join(bodies))[-ANCHOR_BYTES:]
