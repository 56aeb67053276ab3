"""A round is bounded, every ready type takes part, and a backlog's hours join while there is
room.
"""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import HOUR, frontier

from hourmark.records.hours import Hour
from hourmark_etl.closing.sealing import plan_round


def later(hours: int) -> Hour:
    return Hour(HOUR.start_s + 3600 * hours, 3600)


def up_to(hours: int, first: int = 0) -> tuple[Hour, ...]:
    return tuple(later(n) for n in range(first, hours + 1))


def test_a_backlog_goes_as_far_as_the_watermark() -> None:
    watermarks = {"click": later(3).end_ms, "view": HOUR.end_ms + 5}
    assert plan_round([frontier("click"), frontier("view")], watermarks, {}) == {
        "click": up_to(3),
        "view": (HOUR,),
    }


def test_a_frontier_hour_takes_part_however_large_and_then_nothing_joins() -> None:
    sizes = {("click", HOUR.start_s): 100}
    assert plan_round([frontier("click")], {"click": later(3).end_ms}, sizes, bytes_max=10) == {
        "click": (HOUR,)
    }


def test_an_hour_that_does_not_fit_ends_its_types_chain_but_no_other() -> None:
    sizes = {("click", later(1).start_s): 50, ("view", later(1).start_s): 5}
    planned = plan_round(
        [frontier("click"), frontier("view")],
        {"click": later(2).end_ms, "view": later(2).end_ms},
        sizes,
        bytes_max=10,
    )
    assert planned == {"click": (HOUR,), "view": up_to(2)}


def test_before_the_first_hour_only_hours_that_hold_something_take_part() -> None:
    backfilling = dataclasses.replace(frontier("click", later(-9)), first_hour=HOUR)
    to_backfill = {"click": [later(n).start_s for n in (-9, -7, -2)]}
    planned = plan_round([backfilling], {"click": later(1).end_ms}, {}, to_backfill)
    assert planned == {"click": (later(-9), later(-7), later(-2), HOUR, later(1))}
    open_ = plan_round([backfilling], {"click": HOUR.start_s * 1000}, {}, to_backfill)
    assert open_ == {"click": (later(-9), later(-7), later(-2))}, "the first hour has not ended"
    bounded = plan_round([backfilling], {"click": later(1).end_ms}, {}, to_backfill, hours_max=2)
    assert bounded == {"click": (later(-9), later(-7))}


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        st.tuples(st.integers(0, 5), st.integers(0, 6)),
        min_size=1,
    ),
    st.integers(1, 12),
    st.integers(0, 40),
    st.integers(0, 9),
)
def test_a_round_is_bounded_and_within_every_watermark(
    types: dict[str, tuple[int, int]], hours_max: int, bytes_max: int, size: int
) -> None:
    ready = [frontier(t, later(at)) for t, (at, _) in types.items()]
    watermarks = {t: later(at + more).end_ms for t, (at, more) in types.items()}
    sizes = {(t, later(n).start_s): size for t in types for n in range(12)}
    planned = plan_round(ready, watermarks, sizes, hours_max=hours_max, bytes_max=bytes_max)
    count = sum(map(len, planned.values()))
    assert all(
        hours == up_to(types[t][0] + len(hours) - 1, types[t][0]) for t, hours in planned.items()
    )
    assert len(planned) == min(len(types), hours_max)
    assert count <= hours_max
    assert (count - len(planned)) * size <= bytes_max
    assert all(hours[-1].end_ms <= watermarks[t] for t, hours in planned.items())
    if hours_max >= len(types) * 7 and bytes_max >= size * len(types) * 7:
        assert all(hours[-1].end_ms == watermarks[t] for t, hours in planned.items())
