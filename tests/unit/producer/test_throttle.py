"""Warnings that would repeat."""

from __future__ import annotations

import pytest
from tests.support.clock import FakeClock

from hourmark_producer.throttle import INTERVAL_S, Throttle


def test_a_warning_is_logged_once_an_interval_and_costs_one_lookup_in_between(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    throttle = Throttle(clock)
    for key in ("a", "b", "a"):
        throttle.warn(key, f"look at {key}")
    assert caplog.messages == ["look at a", "look at b"]
    known = throttle._last
    clock.advance(INTERVAL_S / 2)
    throttle.warn("a", "look at a")
    assert throttle._last is known, "thousands of files that cannot be looked at are warned of at each scan"
    clock.advance(INTERVAL_S / 2)
    throttle.warn("b", "look at b again")
    assert caplog.messages[2:] == ["look at b again"] and list(throttle._last) == ["b"]
