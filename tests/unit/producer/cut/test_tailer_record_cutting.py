"""Cutting of records that are more than one line: whole, bounded, and the same however the file
grows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from hourmark.records.ranges import Part
from hourmark.records.record_start import RecordStart
from hourmark_producer.cut.lines import NoCompleteLine, RangeCut, RangeLimits
from hourmark_producer.cut.records import cut_records

PATTERN = "^S"
STARTS = RecordStart(PATTERN).starts
LIMITS = st.integers(1, 12).flatmap(
    lambda n: st.builds(RangeLimits, st.just(n), st.integers(n, 24))
)
LARGE = st.builds(RangeLimits, st.integers(1, 400), st.just(10_000))
PIECES = [
    b"S",
    b"\n",
    b"Sa\n",
    b" at\n",
    b"\r\n",
    b"\n\n",
    b"xS\n",
    b"x" * 9,
    b"S" + b"y" * 23 + b"\n",
    b"z" * 60,
]
CONTENT = st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)
GROW = st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=6).map(
    sorted
)  # to a size, and whether it flushes then


def cuts(
    content: bytes, limits: RangeLimits, grow: list[tuple[int, bool]]
) -> Iterator[tuple[int, RangeCut, bool]]:
    """All cuts of a file, which grows in these steps: offset, cut, and whether all there was had
    been flushed.
    """
    position, in_record = 0, False
    for size, flush in [*grow, (len(content), True)]:
        visible = content[:size]
        while True:

            def read(
                skip: int, count: int, visible: bytes = visible, position: int = position
            ) -> bytes:
                return visible[position + skip : position + skip + count]

            found = cut_records(read, limits, STARTS, in_record=in_record, flush=flush)
            if isinstance(found, NoCompleteLine):
                rest = visible[position:]
                assert found.searched == (0 if b"\n" in rest else len(rest)), (
                    "whole lines that wait are work to be done"
                )
                assert not (flush and b"\n" in rest), "nothing whole is left behind by a flush"
                break
            yield position, found, flush and position + len(found.body) > visible.rfind(b"\n")
            position, in_record = position + len(found.body), found.part is Part.CHUNK


def records(body: bytes) -> list[bytes]:
    """By a look at each line: what begins with S, or stands first, with all that follows and does
    not.
    """
    found: list[bytes] = []
    for line in (
        body.splitlines(keepends=True) if b"\r" not in body else re.findall(rb"[^\n]*\n", body)
    ):
        if not found or line.startswith(b"S"):
            found.append(line)
        else:
            found[-1] += line
    return found


@given(CONTENT, st.one_of(LIMITS, LARGE), GROW)
def test_ranges_together_are_the_bytes_of_the_file(
    content: bytes, limits: RangeLimits, grow: list[tuple[int, bool]]
) -> None:
    found = [cut for _, cut, _ in cuts(content, limits, grow)]
    whole = b"".join(bytes(one.body) for one in found)
    assert content.startswith(whole)
    rest = content[len(whole) :]
    assert b"\n" not in rest and len(rest) <= limits.line_bytes_max


@given(CONTENT, st.one_of(LIMITS, LARGE), GROW)
def test_each_range_is_whole_records_or_a_bounded_piece(
    content: bytes, limits: RangeLimits, grow: list[tuple[int, bool]]
) -> None:
    in_record = False
    for _, one, _ in cuts(content, limits, grow):
        assert bytes(one.body)
        if one.part is Part.LINES:
            assert not in_record and bytes(one.body).endswith(b"\n")
            assert len(bytes(one.body)) <= limits.range_bytes or len(records(bytes(one.body))) == 1
            assert all(
                len(record) <= limits.line_bytes_max + 1 for record in records(bytes(one.body))
            )
        else:
            assert len(bytes(one.body)) <= limits.line_bytes_max
            assert one.part is Part.CHUNK or bytes(one.body).endswith(b"\n")
        in_record = one.part is Part.CHUNK


@given(CONTENT, LARGE, st.lists(st.integers(0, 400), max_size=6).map(sorted))
def test_however_a_file_grows_and_is_cut_its_records_are_the_same(
    content: bytes, limits: RangeLimits, sizes: list[int]
) -> None:
    found = [
        record
        for _, one, _ in cuts(content, limits, [(size, False) for size in sizes])
        for record in records(bytes(one.body))
    ]
    assert found == records(content[: content.rfind(b"\n") + 1])


@given(CONTENT, LARGE, GROW)
def test_only_a_flush_ends_a_record_early(
    content: bytes, limits: RangeLimits, grow: list[tuple[int, bool]]
) -> None:
    early = True
    for offset, one, flushed in cuts(content, limits, grow):
        assert early or content[offset : offset + 1] == b"S", "a range begins where a record does"
        early = flushed
        assert one.part is Part.LINES


@given(CONTENT, LIMITS, st.lists(st.integers(0, 400), max_size=6).map(sorted))
def test_what_goes_in_pieces_is_exactly_what_is_too_long(
    content: bytes, limits: RangeLimits, sizes: list[int]
) -> None:
    pieces = [
        (at, bytes(one.body))
        for at, one, _ in cuts(content, limits, [(n, False) for n in sizes])
        if one.part is not Part.LINES
    ]
    *whole, last = records(content if content.endswith(b"\n") else content + b"\n") or [b""]
    long = [record if len(record) > limits.line_bytes_max + 1 else b"" for record in (*whole, last)]
    sent, expected = b"".join(body for _, body in pieces), b"".join(long[:-1])
    assert sent.startswith(expected) and long[-1].startswith(sent[len(expected) :])
    assert sent == b"".join(long) or not content.endswith(b"\n")


def test_the_search_goes_backwards_and_reads_little() -> None:
    looked: list[int] = []

    def starts(body: bytes, at: int, end: int) -> Iterator[int]:
        looked.append(end - at)
        return STARTS(body, at, end)

    body = b"S a line\n  and its second\n" * 40_000
    found = cut_records(
        lambda skip, n: body[skip : skip + n],
        RangeLimits(1 << 19, 4 << 20),
        starts,
        in_record=False,
        flush=False,
    )
    assert isinstance(found, RangeCut) and len(found.body) > (1 << 19) - 100
    assert sum(looked) < 10_000
