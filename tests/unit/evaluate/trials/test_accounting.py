"""The account finds each fault that is planted in what was read, and no other."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark_evaluate.accounting import (
    ConsumedRecords,
    count_per_second,
    count_records,
    longest_wait_seconds,
    recovery_seconds,
)
from hourmark_evaluate.record_format import RecordFormat, RecordPlacement
from hourmark_evaluate.results import TimelinePoint

FORM = RecordFormat(b"r" * 16, 100)
PLAN = RecordPlacement(("a", "b"), (7, 3), 2)
SENT = 200


def faithful() -> ConsumedRecords:
    """All that was sent, as a consumer would read it."""
    found = ConsumedRecords()
    for number in range(SENT):
        found.add(*PLAN.assign(number), [FORM.decode_number(FORM.encode(number))])
    return found


def acknowledged(*but: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    flags = np.ones(SENT, dtype=np.bool_)
    flags[list(but)] = False
    return flags


def test_what_is_whole_has_no_fault() -> None:
    counts = count_records("edge", PLAN, acknowledged(), faithful())
    assert (counts.sent, counts.acknowledged, counts.read) == (SENT, SENT, SENT)
    assert (
        counts.lost,
        counts.doubled,
        counts.phantom,
        counts.disordered,
        counts.unacknowledged,
    ) == (0, 0, 0, 0, 0)


def _remove(readings: ConsumedRecords) -> None:
    readings.numbers["a", 0].remove(0)


def _double(readings: ConsumedRecords) -> None:
    readings.numbers["a", 0].append(0)


def _alter(readings: ConsumedRecords) -> None:
    record = bytearray(FORM.encode(0))
    record[50] ^= 1
    readings.add("a", 0, [FORM.decode_number(bytes(record))])


def _never_sent(readings: ConsumedRecords) -> None:
    readings.add("a", 0, [FORM.decode_number(FORM.encode(SENT))])


def _of_another_run(readings: ConsumedRecords) -> None:
    readings.add("a", 0, [FORM.decode_number(RecordFormat(b"x" * 16, 100).encode(0))])


def _elsewhere(readings: ConsumedRecords) -> None:
    readings.numbers["a", 0].remove(0)
    readings.numbers["b", 1].append(0)


def _turn(readings: ConsumedRecords) -> None:
    numbers = readings.numbers["a", 1]
    numbers[0], numbers[1] = numbers[1], numbers[0]


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (_remove, {"lost": 1}),
        (_double, {"doubled": 1}),
        (_alter, {"phantom": 1}),
        (_never_sent, {"phantom": 1}),
        (_of_another_run, {"phantom": 1}),
        (_elsewhere, {"lost": 1, "phantom": 1}),
        (_turn, {"disordered": 1}),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_each_planted_fault_is_counted(
    plant: Callable[[ConsumedRecords], None], found: dict[str, int]
) -> None:
    readings = faithful()
    plant(readings)
    counts = count_records("edge", PLAN, acknowledged(), readings)
    seen = {
        name: getattr(counts, name)
        for name in ("lost", "doubled", "phantom", "disordered", "unacknowledged")
    }
    assert {name: number for name, number in seen.items() if number} == found


def test_what_was_not_acknowledged_is_neither_lost_nor_a_fault() -> None:
    readings = faithful()
    _remove(readings)
    counts = count_records("edge", PLAN, acknowledged(0, 1), readings)
    assert (counts.lost, counts.unacknowledged, counts.acknowledged) == (0, 1, SENT - 2)


@given(
    st.integers(0, 10_000), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 7)
)
def test_a_number_has_one_place_however_it_is_asked(
    number: int, shares: list[int], partitions: int
) -> None:
    placement = RecordPlacement(tuple(map(str, range(len(shares)))), tuple(shares), partitions)
    topics, places = placement.assign_many(np.array([number]))
    assert placement.assign(number) == (str(topics[0]), places[0])


def test_shares_are_kept() -> None:
    places = [PLAN.assign(number)[0] for number in range(SENT)]
    assert (places.count("a"), places.count("b")) == (140, 60)


@given(st.integers(0, 2**63), st.integers(64, 2000))
def test_a_record_tells_its_number(number: int, length: int) -> None:
    record_format = RecordFormat(b"r" * 16, length)
    record = record_format.encode(number)
    assert (
        len(record) == length
        and record_format.decode_number(record) == number
        and record_format.decode_number(record[:-1]) is None
    )


SENT_S = np.array([1.0, 2.0, 3.0, 9.0])
ALL = np.ones(4, dtype=np.bool_)


def test_recovery_is_counted_from_the_servers_return() -> None:
    answered_s = np.array([1.1, 8.5, 8.7, 9.1])
    assert recovery_seconds(SENT_S, answered_s, ALL, 8.0, 20.0) == pytest.approx(0.7)
    assert longest_wait_seconds(SENT_S, answered_s, 1.5, 8.0) == pytest.approx(6.5)


def test_who_was_never_held_up_recovers_at_once() -> None:
    assert recovery_seconds(SENT_S, np.array([1.1, 2.1, 3.1, 9.1]), ALL, 8.0, 20.0) == 0.0


@pytest.mark.parametrize(
    ("answered_s", "flags"),
    [
        ([1.1, math.nan, 8.7, 9.1], [True, False, True, True]),
        ([1.1, 8.5, 30.0, 9.1], [True] * 4),
        ([1.1, 8.5, 8.7, math.nan], [True, True, True, False]),
        ([1.1, 8.5, 8.7, 9.1], [True, True, True, False]),
    ],
    ids=[
        "one of before is never answered",
        "one of before too late",
        "none of later answered",
        "later ones refused alone",
    ],
)
def test_a_producer_that_never_goes_on_has_not_recovered(
    answered_s: list[float], flags: list[bool]
) -> None:
    assert recovery_seconds(SENT_S, np.array(answered_s), np.array(flags), 8.0, 20.0) is None


def test_records_that_were_refused_meanwhile_do_not_hold_up_a_recovery() -> None:
    assert recovery_seconds(
        SENT_S, np.array([1.1, 8.0, 8.2, 9.1]), np.array([True, False, True, True]), 8.0, 20.0
    ) == pytest.approx(0.2)


def test_a_timeline_has_every_second() -> None:
    points = count_per_second(
        SENT_S, np.array([1.1, math.nan, 3.5, 9.9]), np.array([True, False, True, True])
    )
    assert len(points) == 10 and points[1] == TimelinePoint(at_s=1, sent=1, acknowledged=1)
    assert sum(p.sent for p in points) == 4 and sum(p.acknowledged for p in points) == 3
    assert count_per_second(np.empty(0), np.empty(0), np.empty(0, dtype=np.bool_)) == ()
