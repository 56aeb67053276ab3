"""When two readings of a range differ, and which hours that holds; pure."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from tests.support.records import HOUR, audit_record, frontier, seal

from hourmark.records.audit import Promise
from hourmark.records.hours import Hour
from hourmark_etl.closing.proof.readings import (
    READINGS,
    AuditVersion,
    ContradictoryRange,
    build_conflicts,
    find_differing_ranges,
)
from hourmark_etl.model import Frontier, HourState
from hourmark_etl.staging.stage import compute_promises_digest


def readings(*rows: tuple[int, int, bytes]) -> pa.Table:
    columns = [
        [bytes(7) + bytes([r]) for r, _, _ in rows],
        [at for _, at, _ in rows],
        [c * 8 for _, _, c in rows],
    ]
    columns.append([None] * len(rows))  # records without checksums
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, READINGS, strict=True)], schema=READINGS
    )


@pytest.mark.parametrize(
    ("new", "known", "ranges"),
    [
        ([(1, 5, b"a"), (2, 5, b"b")], [], []),
        ([(1, 5, b"a"), (1, 5, b"b"), (2, 5, b"b")], [], [1]),
        ([(1, 5, b"a")], [(1, 5, b"b"), (2, 5, b"a")], [1]),
        ([(1, 5, b"a")], [(1, 5, b"a"), (1, 5, b"b")], []),
        ([(1, 5, b"c")], [(1, 5, b"a"), (1, 5, b"b")], [1]),
        ([(1, 5, b"a")], [(1, 6, b"b")], []),
        ([], [(1, 5, b"a"), (1, 5, b"b")], []),
    ],
    ids=[
        "alone",
        "among the new",
        "with a known one",
        "both known",
        "a third",
        "another time: another range",
        "nothing new",
    ],
)
def test_a_range_differs_where_a_content_is_new_and_not_the_only_one(
    new: list[tuple[int, int, bytes]], known: list[tuple[int, int, bytes]], ranges: list[int]
) -> None:
    assert [
        r[-1]
        for r in find_differing_ranges(readings(*new), readings(*known))
        .column("range_id")
        .to_pylist()
    ] == ranges


def test_equal_promises_have_equal_contents_and_each_of_their_fields_counts() -> None:
    one, other = Promise("click", 3600, 2, 7), Promise("view", 7200, 1, 5)

    def content(*promised: Promise, ids: bytes = b"ids") -> bytes:
        return compute_promises_digest(audit_record(promised=promised, ids=ids))

    assert (
        content(one, other) == content(other, one)
        and content(one, other).hex() == "f9eb6652d90eae3c"
    )
    changed = [{"event_type": "clicks"}, {"hour_start_s": 7200}, {"count": 3}, {"sum": 8}]
    others = {content(dataclasses.replace(one, **change), other) for change in changed}  # type: ignore[arg-type]
    assert (
        len(
            others
            | {content(one, other), content(one), content(), content(one, other, ids=b"others")}
        )
        == 8
    )


OPEN = frontier(hour=Hour(HOUR.start_s + 7200, 3600), settled_next=10)
SEALED = dataclasses.replace(OPEN, state=HourState.SEALED, seal=seal(audit_next=20))


@pytest.mark.parametrize(
    ("hours", "offsets", "frontier", "expected"),
    [
        ((2, 3), (11, 12), OPEN, {2, 3}),
        ((0, 3), (9, 12), OPEN, {3}),
        ((0, 1), (11, 12), OPEN, {2}),
        ((0, 1), (8, 9), OPEN, set()),
        ((2, 9), (8, 9), OPEN, {2, 9}),
        ((2, 2), (15, 20), SEALED, {3}),
        ((2, 5), (15, 19), SEALED, {5}),
    ],
    ids=[
        "open hours",
        "one is settled",
        "both late",
        "both settled",
        "open, if read long ago",
        "late for a seal",
        "one is sealed",
    ],
)
def test_of_each_reading_the_hour_is_held_that_would_list_it(
    hours: tuple[int, int], offsets: tuple[int, int], frontier: Frontier, expected: set[int]
) -> None:
    made = [
        AuditVersion(o, "web", (("click", HOUR.start_s + 3600 * h, 1),))
        for h, o in zip(hours, offsets, strict=True)
    ]
    found = build_conflicts(ContradictoryRange(bytes(8), tuple(made)), {"click": frontier}, 3600, 7)
    assert {(c.hour_s - HOUR.start_s) // 3600 for c in found} == expected
    assert all(c.what.count("(web)") == 2 and c.found_at_ms == 7 for c in found)
