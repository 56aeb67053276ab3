"""What moved, and in which minutes nothing did."""

from __future__ import annotations

from tests.faults.chaos.flows import standing


def test_a_flow_that_moved_in_each_minute_did_not_stand() -> None:
    assert standing([10, 70, 130], 5, 150, 60) == []


def test_minutes_without_movement_are_named_by_their_begin() -> None:
    assert standing([10, 130], 5, 150, 60) == [65]
    assert standing([], 5, 150, 60) == [5, 65, 125]


def test_a_short_fault_has_one_whole_minute() -> None:
    assert standing([64], 5, 10, 60) == []
    assert standing([4, 65], 5, 10, 60) == [5]
