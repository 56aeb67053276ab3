"""Waiting for a condition, bounded: tests never sleep for a time that seems long enough."""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE_S = 0.01


def wait_for(
    condition: Callable[[], bool], what: str, within_s: float = 60.0, pause_s: float = PAUSE_S
) -> None:
    """Return once `condition` holds; AssertionError, saying `what` was awaited, if it does not
    within the time.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within_s} s"
        time.sleep(pause_s)


def holds(condition: Callable[[], bool], what: str, for_s: float, pause_s: float = PAUSE_S) -> None:
    """Return after this long; AssertionError, saying `what` should have held, as soon as
    `condition` does not.
    """
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        assert condition(), what
        time.sleep(pause_s)
