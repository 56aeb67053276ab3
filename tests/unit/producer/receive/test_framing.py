"""A stream as messages, however it arrives in pieces (RFC 6587)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark_producer.receive.framing import FramingResult, SyslogFramer, message_to_line

MESSAGES = [b"<13>1 a", b"<14>2 with space", b"<15>" + b"x" * 40, b"<16>end"]


def counted(*messages: bytes) -> bytes:
    return b"".join(b"%d %s" % (len(message), message) for message in messages)


def fed(
    stream: bytes, cuts: list[int], limit: int = 100
) -> tuple[list[bytes], SyslogFramer, list[FramingResult]]:
    framer, framed = SyslogFramer(limit), []
    places = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    for start, end in itertools.pairwise(places):
        if start < end:
            framed.append(framer.feed(stream[start:end]))
    return [message for one in framed for message in one.messages], framer, framed


@given(cuts=st.lists(st.integers(0, 200)))
@pytest.mark.parametrize(
    "stream",
    [counted(*MESSAGES), b"\n".join(MESSAGES) + b"\n", b"\0".join(MESSAGES) + b"\0"],
    ids=["counted", "newline", "NUL"],
)
def test_messages_are_the_same_wherever_the_stream_is_cut(stream: bytes, cuts: list[int]) -> None:
    messages, framer, framed = fed(stream, cuts)
    assert messages == MESSAGES
    assert framer.unfinished_bytes == 0 and not any(
        one.error or one.skipped_bytes for one in framed
    )


@given(cuts=st.lists(st.integers(0, 300)))
@pytest.mark.parametrize("is_counted", [True, False])
def test_a_message_that_is_too_long_is_passed_over_and_counted_in_bytes(
    cuts: list[int], is_counted: bool
) -> None:
    long = b"<13>" + b"y" * 150
    sent = [MESSAGES[0], long, MESSAGES[1]]
    stream = counted(*sent) if is_counted else b"\n".join(sent) + b"\n"
    messages, _, framed = fed(stream, cuts)
    assert messages == [MESSAGES[0], MESSAGES[1]]
    assert sum(one.skipped_bytes for one in framed) == len(long)
    assert sum(one.oversized for one in framed) == 1


@pytest.mark.parametrize("flawed", [b"5x<13>", b"12345678901 <", b"0 <13>", b"7 <13>1 ax"])
def test_what_is_no_length_is_a_flaw_and_messages_before_it_stand(flawed: bytes) -> None:
    framed = SyslogFramer(100).feed(counted(MESSAGES[0]) + flawed)
    assert framed.messages[:1] == [MESSAGES[0]]
    assert "not a message length" in framed.error


def test_the_last_message_needs_no_end_where_none_is_counted() -> None:
    framer = SyslogFramer(100)
    framer.feed(b"<13>one\n<13>two")
    assert (framer.unfinished_bytes, framer.finish(), framer.unfinished_bytes) == (7, b"<13>two", 0)
    cut_off = SyslogFramer(100)
    cut_off.feed(b"9 <13>")
    assert cut_off.finish() == b"" and cut_off.unfinished_bytes == 6


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (b"<13>a", b"<13>a\n"),
        (b"<13>a\r\n\0", b"<13>a\n"),
        (b"<13>a\n  at b\n", b"<13>a#012  at b\n"),
        (b"\n", b""),
        (b"", b""),
    ],
)
def test_a_message_is_one_line(message: bytes, line: bytes) -> None:
    assert message_to_line(message) == line
