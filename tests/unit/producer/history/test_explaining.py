"""Whether a packed file's content was read already, as another file."""

from __future__ import annotations

import io

import pytest
from tests.support.tailer.host import lines

from hourmark_producer.files.fingerprints import ANCHOR_BYTES, HEAD_BYTES
from hourmark_producer.history.read_state import ContentHistory, ReadState, determine_read_state

HEADER = b"#Version: 1.0\n#Fields: " + b"date time c-ip " * 20 + b"\n"


def past(content: bytes, offset: int | None = None, *, awaited: bool = False) -> ContentHistory:
    offset = len(content) if offset is None else offset
    return ContentHistory(
        content[:HEAD_BYTES], offset, content[max(0, offset - ANCHOR_BYTES) : offset], awaited
    )


def answer(content: bytes, *pasts: ContentHistory) -> ReadState:
    return determine_read_state(io.BytesIO(content), pasts, lambda: None).state


@pytest.mark.parametrize(
    "offset", [len(lines(1)), len(lines(5)), len(lines(5000)), len(lines(9999)), len(lines(10_000))]
)
def test_what_holds_both_ends_of_what_was_read_was_read(offset: int) -> None:
    told = answer(lines(10_000), past(lines(10_000), offset))
    assert told is (ReadState.READ if offset > 64 else ReadState.UNDECIDED)


def test_what_begins_otherwise_was_not_read() -> None:
    assert answer(lines(100), past(lines(50, 1000)), past(lines(1, 7))) is ReadState.UNREAD


def test_what_only_begins_alike_was_not_read() -> None:
    assert (
        answer(HEADER + lines(100, 1000), past(HEADER + lines(100)), past(HEADER + lines(30)))
        is ReadState.UNREAD
    )


def test_what_may_be_the_beginning_of_what_was_read_is_not_told() -> None:
    assert answer(lines(90), past(lines(100))) is ReadState.UNDECIDED


def test_without_a_head_the_other_end_tells() -> None:
    known = past(lines(100))._replace(head=b"")
    assert answer(lines(200), known) is ReadState.READ
    assert answer(lines(200, 1), known) is ReadState.UNREAD
    assert answer(lines(90), known) is ReadState.UNREAD


def test_lines_that_are_alike_tell_nothing_but_where_nothing_else_is_there() -> None:
    beat = b"heartbeat ok\n"
    assert answer(beat * 100, past(beat * 50)) is ReadState.UNDECIDED
    assert answer(beat * 2, past(beat * 2)) is ReadState.READ


def test_behind_what_is_over_it_is_unread_and_behind_what_goes_on_it_is_not() -> None:
    over, further = past(lines(50))._replace(is_over=True), past(lines(70))._replace(is_over=True)
    content = io.BytesIO(lines(100))
    assert determine_read_state(content, [over, further], lambda: None).history == further
    assert determine_read_state(io.BytesIO(lines(100)), [over, past(lines(20))], lambda: None) == (
        ReadState.READ,
        None,
    )


def test_a_small_file_is_told_by_all_that_it_holds() -> None:
    half = lines(1) + b"half"
    assert answer(half, past(half, len(lines(1)))) is ReadState.READ
    assert answer(half, past(half, 0)) is ReadState.READ, "none of it has an end yet, perhaps"
    assert answer(half + b" a line\n", past(half, 0)) is ReadState.UNDECIDED


def test_what_will_be_read_is_waited_for_and_then_it_tells() -> None:
    assert answer(lines(100), past(lines(100), 0, awaited=True)) is ReadState.NOT_YET
    assert answer(lines(100), past(lines(100), 0)) is ReadState.READ
    assert answer(lines(100), past(lines(1), awaited=True)) is ReadState.NOT_YET


def test_nothing_was_not_read_unless_nothing_was() -> None:
    assert answer(b"", past(lines(10))) is ReadState.UNREAD


def test_what_is_over_does_not_tell_while_another_that_begins_so_is_awaited() -> None:
    over, copy = past(lines(50))._replace(is_over=True), past(lines(100), 0, awaited=True)
    assert answer(lines(100), over, copy) is ReadState.NOT_YET
    assert answer(lines(100), over, past(lines(100, 7), 0, awaited=True)) is ReadState.READ, (
        "the other begins otherwise"
    )
