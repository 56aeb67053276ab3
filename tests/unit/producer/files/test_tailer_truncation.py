"""What sizes, head and anchor say about a file's past."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark_producer.files.fingerprints import (
    ANCHOR_BYTES,
    Shrink,
    ShrinkJudgement,
    ShrinkVerdict,
    are_lines_equal,
    judge_shrinks,
    next_anchor,
)


@pytest.mark.parametrize(
    ("shrinks", "verdict", "lost"),
    [
        ([], ShrinkVerdict.SAME, 0),
        (
            [Shrink(100, 49, False)],
            ShrinkVerdict.REPLACED,
            50,
        ),  # below the position: what was unread is lost
        (
            [Shrink(100, 500, True)],
            ShrinkVerdict.REPLACED,
            50,
        ),  # other bytes before the position, whatever the size
        (
            [Shrink(100, 60, False)],
            ShrinkVerdict.SHORTENED,
            40,
        ),  # cut off behind the position: only the difference is lost
        ([Shrink(50, 0, False)], ShrinkVerdict.REPLACED, 0),  # all was read
        (
            [Shrink(50, 0, False), Shrink(45, 0, False)],
            ShrinkVerdict.REPLACED,
            45,
        ),  # the second destroyed what nobody had read
        ([Shrink(100, 60, False), Shrink(70, 0, False)], ShrinkVerdict.REPLACED, 40 + 20),
        (
            [Shrink(100, 0, False), Shrink(30, 10, False), Shrink(20, 5, True)],
            ShrinkVerdict.REPLACED,
            50 + 20 + 20,
        ),
    ],
)
def test_what_each_shrink_destroyed(
    shrinks: list[Shrink], verdict: ShrinkVerdict, lost: int
) -> None:
    assert judge_shrinks(50, shrinks) == ShrinkJudgement(verdict, lost)


@given(st.binary(max_size=ANCHOR_BYTES), st.lists(st.binary(max_size=600), max_size=5))
def test_the_anchor_is_the_last_bytes_read(before: bytes, bodies: list[bytes]) -> None:
    anchor = before
    for body in bodies:
        anchor = next_anchor(anchor, body)
    assert anchor == (before + b"".join(bodies))[-ANCHOR_BYTES:]


@pytest.mark.parametrize(
    ("head", "anchor", "alike"),
    [
        (b"ok\n" * 80, b"k\n" + b"ok\n" * 80, True),
        (b"ok\n" * 80, b"k\nok\nno\nok\n", False),
        (b"started\n" + b"ok\n" * 80, b"ok\n" * 80, False),
        (b"one line without an end", b"one line", False),
        (b"", b"", False),
    ],
)
def test_lines_that_are_one_line_over_and_over_tell_nothing(
    head: bytes, anchor: bytes, alike: bool
) -> None:
    assert are_lines_equal(head, anchor) is alike
