"""Conditions: what is not as it should be for a while.

Each is logged when it begins and when it has ended, not in between.

Whoever meets a condition says so each time, under its key. It has ended when somebody says so, or
when nobody met it for longer than the longest pause between two tries.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterable
from typing import Final

from hourmark.clock import Clock

QUIET_S: Final = 90.0  # above the longest pause of a service's Retry-After
SHOWN_MAX: Final = 100
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class Condition:
    """One. `message`: as it was when it began; `times`: how often it was met; `met_s`: last,
    monotonic.
    """

    message: str
    since_ms: int
    since_s: float
    met_s: float
    times: int = 1


class Throttle:
    """All conditions of one tailer. Safe to use from several threads."""

    def __init__(self, clock: Clock, quiet_s: float = QUIET_S) -> None:
        self._clock = clock
        self._quiet_s = quiet_s
        self._lock = threading.Lock()
        self._ongoing: dict[str, Condition] = {}
        self._latest: Condition | None = None

    def warn(self, key: str, message: str, level: int = logging.WARNING) -> None:
        """The condition is met. `message` is a whole sentence."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if (known := self._ongoing.get(key)) is not None:
                known.met_s, known.times = now_s, known.times + 1
                return
            self._latest = self._ongoing[key] = Condition(
                message, self._clock.now_ms(), now_s, now_s
            )
        _LOG.log(level, "%s", message)

    def over(self, key: str) -> None:
        """The condition has ended, if there was one."""
        if key in self._ongoing:
            with self._lock:
                ended = self._ongoing.pop(key, None)
            if ended is not None:
                self._tell_end(ended)

    def sweep(self) -> None:
        """End the conditions that nobody met for long; to be called now and then."""
        before_s = self._clock.monotonic_s() - self._quiet_s
        with self._lock:
            ended = [key for key, condition in self._ongoing.items() if condition.met_s < before_s]
            conditions = [self._ongoing.pop(key) for key in ended]
        for condition in conditions:
            self._tell_end(condition)

    def ongoing(self) -> list[Condition]:
        """The oldest first, of many some."""
        with self._lock:
            return [
                dataclasses.replace(condition)
                for condition, _ in zip(self._ongoing.values(), range(SHOWN_MAX), strict=False)
            ]

    def was_met(self, keys: Iterable[str], within_s: float) -> bool:
        """Whether one of these was met in the last seconds."""
        since_s = self._clock.monotonic_s() - within_s
        with self._lock:
            return any(key in self._ongoing and self._ongoing[key].met_s >= since_s for key in keys)

    def latest(self) -> Condition | None:
        """The one that began last, whether or not it has ended."""
        with self._lock:
            return self._latest

    def _tell_end(self, condition: Condition) -> None:
        seconds = condition.met_s - condition.since_s
        _LOG.info(
            "no more, after %.0f s and %d times: %s", seconds, condition.times, condition.message
        )
