"""What sizes, head and anchor say about a file's past."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark_producer.files.fingerprints import (
    ANCHOR_BYTES,
    Truncation,
    TruncationEffect,
    TruncationVerdict,
    are_lines_equal,
    assess_truncations,
    extend_anchor,
)


@pytest.mark.parametrize(
    ("shrinks", "verdict", "lost"),
    [
        ([], TruncationVerdict.SAME, 0),
        (
            [Truncation(100, 49, False)],
            TruncationVerdict.REPLACED,
            50,
        ),  # below the position: what was unread is lost
        (
            [Truncation(100, 500, True)],
            TruncationVerdict.REPLACED,
            50,
        ),  # other bytes before the position, whatever the size
        (
            [Truncation(100, 60, False)],
            TruncationVerdict.SHORTENED,
            40,
        ),  # cut off behind the position: only the difference is lost
        ([Truncation(50, 0, False)], TruncationVerdict.REPLACED, 0),  # all was read
        (
            [Truncation(50, 0, False), Truncation(45, 0, False)],
            TruncationVerdict.REPLACED,
            45,
        ),  # the second destroyed what nobody had read
        (
            [Truncation(100, 60, False), Truncation(70, 0, False)],
            TruncationVerdict.REPLACED,
            40 + 20,
        ),
        (
            [Truncation(100, 0, False), Truncation(30, 10, False), Truncation(20, 5, True)],
            TruncationVerdict.REPLACED,
            50 + 20 + 20,
        ),
    ],
)
def test_what_each_shrink_destroyed(
    shrinks: list[Truncation], verdict: TruncationVerdict, lost: int
) -> None:
    assert assess_truncations(50, shrinks) == TruncationEffect(verdict, lost)


@given(st.binary(max_size=ANCHOR_BYTES), st.lists(st.binary(max_size=600), max_size=5))
def test_the_anchor_is_the_last_bytes_read(before: bytes, bodies: list[bytes]) -> None:
    anchor = before
    for body in bodies:
        anchor = extend_anchor(anchor, body)
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
