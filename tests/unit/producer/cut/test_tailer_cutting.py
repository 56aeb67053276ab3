"""Cutting: nothing lost, nothing doubled, everything bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark.records.ranges import Part
from hourmark_producer.cut.lines import NoCompleteLine, RangeCut, RangeLimits, ReadBytes, cut_lines

LIMITS = st.integers(1, 12).flatmap(
    lambda n: st.builds(RangeLimits, st.just(n), st.integers(n, 24))
)
CONTENT = st.lists(
    st.sampled_from([b"\n", b"a", b"bc", b"\r\n", b"\0", b"x" * 9, b"y" * 23, b"z" * 60]),
    max_size=30,
).map(b"".join)


def cuts(
    content: bytes, limits: RangeLimits, grow: list[int] | None = None, *, anywhere: bool = True
) -> tuple[list[RangeCut], int]:
    """All cuts of a file, which grows in the given steps, and the position reached."""
    result: list[RangeCut] = []
    position, in_line, searched = 0, False, 0
    for size in [*(grow or []), len(content)]:
        visible = content[:size]
        while True:

            def read(
                skip: int, count: int, visible: bytes = visible, position: int = position
            ) -> bytes:
                return visible[position + skip : position + skip + count]

            def whole(count: int, read: ReadBytes = read) -> memoryview:
                return memoryview(read(0, count))

            found = cut_lines(
                read,
                limits,
                in_line=in_line,
                searched=searched,
                read_buffered=whole if anywhere else None,
            )
            if isinstance(found, NoCompleteLine):
                searched = found.searched
                break
            found = found._replace(body=bytes(found.body))
            result.append(found)
            position, in_line, searched = (
                position + len(bytes(found.body)),
                found.part is Part.CHUNK,
                0,
            )
    return result, position


@given(CONTENT, LIMITS, st.lists(st.integers(0, 400), max_size=5).map(sorted))
def test_ranges_together_are_the_bytes_of_the_file(
    content: bytes, limits: RangeLimits, grow: list[int]
) -> None:
    found, position = cuts(content, limits, grow)
    assert b"".join(bytes(one.body) for one in found) == content[:position]
    rest = content[position:]
    assert b"\n" not in rest, "a whole line was left behind"
    assert len(rest) <= limits.line_bytes_max, "memory would not be bounded"


@given(CONTENT, LIMITS, st.lists(st.integers(0, 400), max_size=5).map(sorted))
def test_each_range_is_whole_lines_or_a_bounded_chunk(
    content: bytes, limits: RangeLimits, grow: list[int]
) -> None:
    in_line = False
    for one in cuts(content, limits, grow)[0]:
        assert bytes(one.body)
        if one.part is Part.LINES:
            assert not in_line and bytes(one.body).endswith(b"\n")
            assert len(bytes(one.body)) <= limits.range_bytes or bytes(one.body).count(b"\n") == 1
            assert all(len(line) <= limits.line_bytes_max for line in bytes(one.body).split(b"\n"))
        else:
            assert len(bytes(one.body)) <= limits.line_bytes_max
            assert (
                bytes(one.body).count(b"\n")
                == (one.part is Part.LAST_CHUNK)
                == bytes(one.body).endswith(b"\n")
            )
        in_line = one.part is Part.CHUNK


@given(CONTENT, LIMITS)
def test_chunks_are_only_of_lines_over_the_limit(content: bytes, limits: RangeLimits) -> None:
    found, position = cuts(content, limits)
    offset = 0
    for one in found:
        if one.part is not Part.LINES:
            begin = content.rfind(b"\n", 0, offset) + 1
            end = content.find(b"\n", offset)
            assert (len(content) if end < 0 else end) - begin > limits.line_bytes_max
        offset += len(bytes(one.body))
    assert offset == position


def test_a_line_of_exactly_the_limit_is_a_line() -> None:
    found, _ = cuts(b"x" * 24 + b"\n" + b"y" * 25 + b"\n", RangeLimits(8, 24))
    assert [(len(bytes(one.body)), one.part) for one in found] == [
        (25, Part.LINES),
        (24, Part.CHUNK),
        (2, Part.LAST_CHUNK),
    ]


def test_a_slowly_growing_line_is_not_read_from_its_start_each_time() -> None:
    reads: list[tuple[int, int]] = []

    def read(skip: int, count: int) -> bytes:
        reads.append((skip, count))
        return b"x" * min(count, 10)

    assert cut_lines(read, RangeLimits(100, 1000), in_line=False, searched=500) == NoCompleteLine(
        510
    )
    assert reads == [(500, 500)]


def test_limits_that_would_hide_an_over_long_line_in_a_range_are_refused() -> None:
    with pytest.raises(ValueError, match="range_bytes"):
        RangeLimits(25, 24)


@pytest.mark.parametrize("long", [4095, 4096, 4097, 9000])
@pytest.mark.parametrize("anywhere", [True, False])
def test_ranges_end_with_the_last_line_however_far_before_their_end_it_is(
    long: int, anywhere: bool
) -> None:
    content = b"a\nb\n" + b"x" * long + b"\n" + b"c\n"
    found, position = cuts(content, RangeLimits(9001, 9001), anywhere=anywhere)
    assert (b"".join(bytes(one.body) for one in found), position) == (content, len(content))
    assert len(found[0].body) == (4 if long == 9000 else len(content))


def test_what_is_packed_is_read_from_the_front() -> None:
    skips: list[int] = []

    def read(skip: int, count: int) -> bytes:
        skips.append(skip)
        return (b"a\n" * 5000)[skip : skip + count]

    assert cut_lines(read, RangeLimits(10_000, 10_000), in_line=False) == RangeCut(
        b"a\n" * 5000, Part.LINES
    )
    assert skips == [0]


def test_what_is_truncated_between_two_reads_is_not_cut() -> None:
    contents = [b"a\n" * 5000, b"b\n", b"b\n"]  # as three reads find it

    def read(skip: int, count: int) -> bytes:
        return contents.pop(0)[skip : skip + count]

    assert cut_lines(
        read,
        RangeLimits(10_000, 10_000),
        in_line=False,
        read_buffered=lambda count: memoryview(read(0, count)),
    ) == RangeCut(b"b\n", Part.LINES)
