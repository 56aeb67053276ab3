"""What size and last bytes say about a file's past."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark_producer.truncation import ANCHOR_BYTES, Judgement, Verdict, judge, next_anchor


@pytest.mark.parametrize(
    ("size", "anchored", "verdict", "lost"),
    [
        (200, True, Verdict.SAME, 0),
        (49, False, Verdict.REPLACED, 50),  # below the position: what was unread is lost
        (500, False, Verdict.REPLACED, 50),  # other bytes before the position, whatever the size
        (60, True, Verdict.SHORTENED, 40),  # cut off behind the position: only the difference is lost
    ],
)
def test_what_a_size_and_the_bytes_before_the_position_say(size: int, anchored: bool, verdict: Verdict, lost: int) -> None:
    assert judge(offset=50, size_seen=100, size=size, anchored=anchored) == Judgement(verdict, lost)


@given(st.binary(max_size=ANCHOR_BYTES), st.lists(st.binary(max_size=600), max_size=5))
def test_the_anchor_is_the_last_bytes_read(before: bytes, bodies: list[bytes]) -> None:
    anchor = before
    for body in bodies:
        anchor = next_anchor(anchor, body)
    assert anchor == (before + b"".join(bodies))[-ANCHOR_BYTES:]
