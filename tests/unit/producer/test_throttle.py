"""Conditions: told when they begin, and when they have ended."""

from __future__ import annotations

import logging

import pytest
from tests.support.clock import FakeClock

from hourmark_producer.conditions import QUIET_S, ConditionLog


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture) -> FakeClock:
    caplog.set_level(logging.INFO)
    return FakeClock()


def test_a_condition_that_lasts_for_a_day_is_told_once(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    conditions = ConditionLog(clock)
    for _ in range(24 * 60):
        conditions.warn("a", "a is not there")
        conditions.warn("b", "b is not there")
        conditions.sweep()
        clock.advance(60)
    assert caplog.messages == ["a is not there", "b is not there"]
    assert [(one.message, one.times) for one in conditions.ongoing()] == [
        ("a is not there", 1440),
        ("b is not there", 1440),
    ]


def test_its_end_is_told_once_and_the_next_one_is_another(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    conditions = ConditionLog(clock)
    conditions.warn("a", "a is not there")
    clock.advance(30)
    conditions.warn("a", "a is not there, still")
    conditions.resolve("a")
    conditions.resolve("a")
    conditions.warn("a", "a is not there again")
    assert caplog.messages == [
        "a is not there",
        "resolved after 30 s (2 occurrences): a is not there",
        "a is not there again",
    ]
    latest = conditions.latest()
    assert latest is not None and latest.message == "a is not there again"


def test_what_nobody_meets_any_more_has_ended(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    conditions = ConditionLog(clock)
    conditions.warn("a", "a is not there")
    clock.advance(QUIET_S)
    conditions.sweep()
    assert len(conditions.ongoing()) == 1
    clock.advance(1)
    conditions.sweep()
    assert conditions.ongoing() == [] and caplog.messages[1:] == [
        "resolved after 0 s (1 occurrences): a is not there"
    ]
