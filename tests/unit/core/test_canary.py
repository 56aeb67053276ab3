"""The first step that no canary passed is the one that is named."""

from __future__ import annotations

import pytest

from hourmark.alarm import AlarmName
from hourmark.canary import PATIENCE_S, Step, late

NOW_MS = 1_800_000_000_000
LENGTH_S = 60


def passed(**ago_s: float | None) -> dict[Step, int | None]:
    return {Step(name): None if s is None else round(NOW_MS - s * 1000) for name, s in ago_s.items()}


def seen(**ago_s: float | None) -> list[str]:
    alarms = late(passed(**ago_s), NOW_MS, LENGTH_S, "edge")
    assert all((a.name, a.subject) == (AlarmName.CANARY_LATE, "edge") for a in alarms)
    return [alarm.seen for alarm in alarms]


def test_canaries_that_come_are_no_alarm() -> None:
    assert seen(acknowledged=59, mirrored=61, staged=63, closed=120) == []
    assert seen(acknowledged=PATIENCE_S, mirrored=PATIENCE_S, staged=PATIENCE_S, closed=PATIENCE_S + LENGTH_S) == []


@pytest.mark.parametrize(
    ("ages", "step"),
    [
        ((121, 121, 121, 200), "acknowledged"),
        ((10, 130, 130, 200), "mirrored"),
        ((10, 12, 130, 200), "staged"),
        ((10, 12, 14, 181), "closed up to"),
    ],
)
def test_the_first_step_that_none_has_passed_is_named_and_no_other(ages: tuple[float, ...], step: str) -> None:
    (text,) = seen(**dict(zip(map(str, Step), ages, strict=True)))
    assert step in text


def test_a_step_that_none_has_passed_yet_is_late_and_one_that_there_is_not_is_left_out() -> None:
    assert seen(acknowledged=None) == ["no canary of site edge is acknowledged yet; at most 120 s are allowed"]
    assert seen(acknowledged=1, staged=None, closed=1)[0].startswith("no canary of site edge is staged")
    assert seen(acknowledged=1, staged=1, closed=1) == []
