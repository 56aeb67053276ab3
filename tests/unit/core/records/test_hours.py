"""Runs of hours."""

from __future__ import annotations

import pytest

from hourmark.records.hours import Hour, group_consecutive


@pytest.mark.parametrize("length_s", [60, 3600])
def test_hours_are_grouped_into_runs_without_a_gap(length_s: int) -> None:
    hours = [Hour(n * length_s, length_s) for n in (0, 1, 2, 5, 7, 8)]
    assert group_consecutive(hours) == [
        (hours[0], hours[2]),
        (hours[3], hours[3]),
        (hours[4], hours[5]),
    ]
    assert group_consecutive([]) == []
