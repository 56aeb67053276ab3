"""The driver, or a Python worker, is killed at each step of staging and closing, before it and
after it; then started again.

Each kill has an hour of its own in one run: its events come twice and cut anew, some are late.
After the restart everything closes, every promised event stands in exactly one bucket, and no
bucket that stood before has changed. One order is carried out in every run of the suite, all others
in the long tier:

    hourmark test --long tests/faults/test_killed_at_each_step.py
"""

from __future__ import annotations

import pytest
from tests.faults.outcome import assert_whole
from tests.support.crash import STEPS, CrashOrder
from tests.support.etl_scene import Scene

from hourmark.records.hours import Hour

pytestmark = [pytest.mark.stack, pytest.mark.chaos, pytest.mark.timeout(3600)]
# Two orders go on to the next folder of minutes, an hour at most, and no hour may time out.
SCENE = {
    "names": ("one", "two"),
    "crashing": True,
    "minutes_ago": 160,
    "etl": {"deadline_seconds": 14_400.0},
}

_DRIVER_STEPS = (
    "ledger-commit",
    "freeze",
    "seal",
    "attempt",
    "marker",
    "rename",
    "rename-folder",
    "ledger-close",
)
ORDERS = (
    *(
        CrashOrder("staged-write", moment, victim)
        for moment in ("before", "after")
        for victim in ("itself", "driver")
    ),
    *(CrashOrder(step, moment) for step in _DRIVER_STEPS for moment in ("before", "after")),
    CrashOrder("attempt-file", "after"),
    CrashOrder("attempt-file", "before", "driver"),
)
ALWAYS = (CrashOrder("rename", "before"),)


def test_each_step_is_killed_before_and_after() -> None:
    assert {o.step for o in ORDERS} == set(STEPS)
    assert set(ALWAYS) <= set(ORDERS)
    for step in STEPS:
        assert {o.moment for o in ORDERS if o.step == step} == {"before", "after"}, step


@pytest.mark.parametrize(
    "order",
    [pytest.param(order, marks=() if order in ALWAYS else pytest.mark.long) for order in ORDERS],
    ids=str,
)
def test_killed_at_this_step_nothing_is_lost_doubled_or_changed(
    running: Scene, order: CrashOrder
) -> None:
    running.run.revive()
    running.run.order(order)
    # The last two minutes that are begun here are the first ones of their folder.
    skipping = _minutes_left(running.next_hour) + 1 if order.step == "rename-folder" else 0
    hour = running.begin_hour(skipping=skipping)
    running.crashed(order)
    assert_whole(running.closed(hour), hours_before=skipping)


def _minutes_left(begun: Hour) -> int:
    """Buckets that its folder can hold from this one on, which is empty so far."""
    return -(begun.start_s // 60) % 60
