"""The comparison of two sides: it never calls different sides equal, and names each planted
fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark_mirror.record_digests import RecordDigest, content_digest
from hourmark_mirror.verify.comparison import RecordComparison, compare_records


def records(contents: list[str], *, step: int = 1) -> list[RecordDigest]:
    """One record for each content `key=value`; the target's offsets leave gaps for markers
    (`step`).
    """
    made = []
    for i, content in enumerate(contents):
        key, value = (part.encode() for part in content.split("="))
        made.append(RecordDigest(i * step, 1000 + i, key, content_digest(key, value)))
    return made


def names(comparison: RecordComparison) -> list[tuple[str, int | None, int | None, int]]:
    return [(s.kind, s.edge_first, s.central_first, s.count) for s in comparison.spans]


def check(
    edge: list[str], central: list[str], *, cut: int | None = None, window: int = 1000
) -> RecordComparison:
    side = records(edge)
    return compare_records(
        iter(side), iter(records(central, step=2)), len(edge) if cut is None else cut, window=window
    )


def found(
    edge: list[str], central: list[str], *, cut: int | None = None
) -> list[tuple[str, int | None, int | None, int]]:
    return names(check(edge, central, cut=cut))


EDGE = ["a=1", "b=2", "c=3", "d=4"]


def test_equal_sides_have_no_finding() -> None:
    assert found(EDGE, EDGE) == []
    assert check(EDGE, EDGE).matched == 4
    assert found([], []) == []


def test_a_missing_record_is_named_by_its_edge_offset() -> None:
    assert found(EDGE, ["a=1", "d=4"]) == [("missing", 1, None, 2)]
    assert found(EDGE, ["b=2", "c=3", "d=4"]) == [("missing", 0, None, 1)]
    assert found(EDGE, ["a=1", "b=2", "c=3"]) == [("missing", 3, None, 1)]


def test_a_doubled_record_is_named_with_both_offsets() -> None:
    assert found(EDGE, ["a=1", "b=2", "b=2", "c=3", "d=4"]) == [("doubled", 1, 4, 1)]
    assert found(EDGE, [*EDGE, "a=1"]) == [("doubled", 0, 8, 1)]


def test_an_altered_record_is_named() -> None:
    assert found(EDGE, ["a=1", "b=X", "c=3", "d=4"]) == [("altered", 1, 2, 1)]


def test_a_foreign_record_is_named() -> None:
    assert found(EDGE, ["a=1", "z=9", "b=2", "c=3", "d=4"]) == [("foreign", 1, 2, 1)]
    assert found(EDGE, [*EDGE, "z=9"]) == [("foreign", None, 8, 1)]


def test_records_past_the_cut_may_have_arrived_or_not() -> None:
    assert found(EDGE, EDGE[:2], cut=2) == []
    assert found(EDGE, EDGE[:3], cut=2) == []
    assert found(EDGE, EDGE[:1], cut=2) == [("missing", 1, None, 1)]


def test_duplicates_of_the_edge_are_no_finding_and_one_of_them_lost_is() -> None:
    assert found(["a=1", "a=1", "b=2"], ["a=1", "a=1", "b=2"]) == []
    assert found(["a=1", "a=1", "b=2"], ["a=1", "b=2"]) == [("missing", 1, None, 1)]


def test_what_retention_deleted_on_either_side_is_no_finding() -> None:
    trimmed = records(EDGE)[2:]
    result = compare_records(iter(trimmed), iter(records(EDGE)), 4, allow_older=True)
    assert (names(result), result.older, result.matched) == ([], 2, 2)
    result = compare_records(
        iter(records(EDGE)),
        iter(records(EDGE)[2:]),
        4,
        target_was_trimmed=True,
        expired_before_ms=1002,
    )
    assert (names(result), result.expired) == ([], 2)
    result = compare_records(
        iter(records(EDGE)),
        iter(records(EDGE)[2:]),
        4,
        target_was_trimmed=True,
        expired_before_ms=1001,
    )
    assert names(result) == [("missing", 1, None, 1)]


CONTENT = st.lists(
    st.builds("{}={}".format, st.sampled_from("abc"), st.integers(0, 3)), max_size=12
)


@given(CONTENT, CONTENT, st.integers(1, 5))
def test_sides_are_called_equal_only_if_they_are(
    edge: list[str], central: list[str], window: int
) -> None:
    result = check(edge, central, window=window)
    assert (not result.faults) == (edge == central)
    faults = result.faults
    assert result.matched + faults["missing"] + faults["altered"] == len(edge)
    assert result.matched + faults["doubled"] + faults["foreign"] + faults["altered"] == len(
        central
    )


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 30))
def test_a_lost_run_of_any_length_is_named_exactly(before: int, lost: int, after: int) -> None:
    edge = [f"k{i}=v" for i in range(before + lost + after)]
    result = check(edge, edge[:before] + edge[before + lost :], window=5)
    assert names(result) == ([("missing", before, None, lost)] if lost else [])


def test_retention_deletes_beginnings_and_leaves_no_holes() -> None:
    """All records are old enough to be gone."""
    edge = records([f"k{i}={i}" for i in range(10)])
    holed = [r for r in edge if r.offset not in (4, 5, 6)]
    for trimmed in (False, True):
        result = compare_records(
            iter(edge), iter(holed), 10, target_was_trimmed=trimmed, expired_before_ms=10**6
        )
        assert names(result) == [("missing", 4, None, 3)]
    empty = compare_records(iter(edge), iter([]), 10, expired_before_ms=10**6)
    assert (empty.expired, empty.faults["missing"]) == (0, 10), (
        "a target that has all from its offset 0 on has deleted nothing"
    )
    empty = compare_records(
        iter(edge), iter([]), 10, target_was_trimmed=True, expired_before_ms=10**6
    )
    assert (empty.expired, empty.faults["missing"]) == (10, 0)


def test_a_target_that_has_what_the_edge_deleted_has_deleted_nothing_after_it() -> None:
    """Both logs are trimmed; the target begins before the edge does, so its retention has not come
    that far.
    """
    contents = records([f"k{i}={i}" for i in range(12)])
    edge, central = contents[4:], contents[2:4] + contents[8:]
    result = compare_records(
        iter(edge),
        iter(central),
        12,
        allow_older=True,
        target_was_trimmed=True,
        expired_before_ms=10**6,
    )
    assert (names(result), result.older, result.expired) == ([("missing", 4, None, 4)], 2, 0)


def test_a_record_that_the_edge_deleted_once_and_has_again_is_no_beginning() -> None:
    contents = ["a=1", "b=2", "c=3", "d=4", "a=1", "e=5"]
    edge = [r for r in records(contents) if r.offset >= 3]
    result = compare_records(iter(edge), iter(records(contents)), 6, allow_older=True)
    assert (names(result), result.older, result.matched) == ([], 3, 3)


@given(
    st.lists(st.sampled_from(["a=1", "b=2", "c=3", "d=4", "e=5", "f=6"]), min_size=1, max_size=12),
    st.data(),
)
def test_a_right_target_of_an_edge_that_was_trimmed_is_right_whatever_repeats(
    contents: list[str], data: st.DataObject
) -> None:
    """But for a run that comes twice as a whole: there is no telling which of both the edge's
    beginning was.
    """
    start = data.draw(st.integers(0, len(contents) - 1))
    side = records(contents)
    run = contents[start:]
    twice = any(contents[at : at + len(run)] == run for at in range(start))
    result = compare_records(iter(side[start:]), iter(side), len(side), allow_older=True)
    assert twice or not result.faults


@given(
    st.integers(0, 300), st.integers(0, 300), st.integers(40, 80), st.randoms(use_true_random=False)
)
def test_right_sides_are_right_wherever_either_begins(
    edge: int, target: int, window: int, random: Random
) -> None:
    """Retention has deleted more or less of either than a window; timestamps are nearly in order,
    as of several services.
    """
    contents = [
        r._replace(timestamp_ms=r.timestamp_ms + random.randint(-5, 5))
        for r in records([f"k{i}=v" for i in range(350)])
    ]
    result = compare_records(
        iter(contents[edge:]),
        iter(contents[target:]),
        350,
        allow_older=edge > 0,
        target_was_trimmed=target > 0,
        expired_before_ms=10**6,
        window=window,
    )
    assert names(result) == []
    assert (result.expired, result.older) == (max(0, target - edge), max(0, edge - target))
    assert result.matched == 350 - max(edge, target)


def test_a_later_timestamp_just_before_the_edges_beginning_does_not_hide_it() -> None:
    """Both logs are trimmed, and the record nine before the edge's first one is stamped later, so
    less than a run is in the window behind that first record.
    """
    contents = records([f"k{i}=v" for i in range(350)])
    contents[207] = contents[207]._replace(timestamp_ms=contents[216].timestamp_ms + 1)
    result = compare_records(
        iter(contents[216:]),
        iter(contents[1:]),
        350,
        allow_older=True,
        target_was_trimmed=True,
        window=40,
    )
    assert (names(result), result.older, result.matched) == ([], 215, 134)


MILLION = 1_000_000
AT = 765_432


def million(*, without: int = -1, twice: int = -1, altered: int = -1) -> Iterator[RecordDigest]:
    """A million different records; on a target, with one that is not as it was."""
    offset = 0
    for i in range(MILLION):
        key = b"%d" % i
        for _ in range(0 if i == without else 2 if i == twice else 1):
            yield RecordDigest(offset, 1000 + i, key, b"altered" if i == altered else key)
            offset += 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "found"),
    [
        ({"without": AT}, ("missing", AT, None, 1)),
        ({"twice": AT}, ("doubled", AT, AT + 1, 1)),
        ({"altered": AT}, ("altered", AT, AT, 1)),
    ],
    ids=["removed", "doubled", "altered"],
)
def test_one_record_in_a_million_is_found(
    target: dict[str, int], found: tuple[str, int, int | None, int]
) -> None:
    result = compare_records(million(), million(**target), MILLION)
    assert names(result) == [found]
    assert result.matched >= MILLION - 1
