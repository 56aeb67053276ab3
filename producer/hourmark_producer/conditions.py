"""Conditions: problems that last for a while, logged once when they begin and once when they end.

The code that detects a condition reports it on every occurrence under the same key. The condition
ends when it is reported as resolved, or when it was not reported for `QUIET_S` seconds, which is
longer than the longest pause between two retries.
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
    """A problem that lasts for some time, such as a service that does not answer.

    Attributes:
        message: Log message of its first occurrence.
        since_ms: Time of its first occurrence, in Unix milliseconds.
        since_s: The same time in monotonic seconds.
        met_s: Time of its latest occurrence, in monotonic seconds.
        times: Number of occurrences.
    """

    message: str
    since_ms: int
    since_s: float
    met_s: float
    times: int = 1


class ConditionLog:
    """Logs each lasting problem once when it begins and once when it ends.

    Such a problem is called a condition, for example a service that does not answer. Repeated
    occurrences are counted, not logged. Safe to use from several threads.

    Args:
        clock: Clock of this host.
        quiet_s: Seconds without an occurrence after which `sweep` ends a condition.
    """

    def __init__(self, clock: Clock, quiet_s: float = QUIET_S) -> None:
        self._clock = clock
        self._quiet_s = quiet_s
        self._lock = threading.Lock()
        self._ongoing: dict[str, Condition] = {}
        self._latest: Condition | None = None

    def warn(self, key: str, message: str, level: int = logging.WARNING) -> None:
        """Report an occurrence of a condition. Only the first occurrence is logged.

        Args:
            key: Identifies the condition. Until the condition ends, all occurrences with this key
                belong to it.
            message: Log message, a complete sentence. Ignored for later occurrences.
            level: Log level of the message.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            if (known := self._ongoing.get(key)) is not None:
                known.met_s, known.times = now_s, known.times + 1
                return
            self._latest = self._ongoing[key] = Condition(
                message, self._clock.now_ms(), now_s, now_s
            )
        _LOG.log(level, "%s", message)

    def resolve(self, key: str) -> None:
        """End the condition with the given key and log its end.

        Does nothing if the condition is not ongoing.

        Args:
            key: Key that was passed to `warn`.
        """
        if key in self._ongoing:
            with self._lock:
                ended = self._ongoing.pop(key, None)
            if ended is not None:
                self._log_end(ended)

    def sweep(self) -> None:
        """End all conditions that did not occur within the last `quiet_s` seconds, and log this.

        Call this method at regular intervals. Otherwise, a condition ends only when `resolve` is
        called.
        """
        before_s = self._clock.monotonic_s() - self._quiet_s
        with self._lock:
            ended = [key for key, condition in self._ongoing.items() if condition.met_s < before_s]
            conditions = [self._ongoing.pop(key) for key in ended]
        for condition in conditions:
            self._log_end(condition)

    def ongoing(self) -> list[Condition]:
        """Return the ongoing conditions.

        Returns:
            Copies of the conditions, oldest first; at most `SHOWN_MAX`.
        """
        with self._lock:
            return [
                dataclasses.replace(condition)
                for condition, _ in zip(self._ongoing.values(), range(SHOWN_MAX), strict=False)
            ]

    def occurred_within(self, keys: Iterable[str], within_s: float) -> bool:
        """Return whether an ongoing condition with one of these keys occurred recently.

        Args:
            keys: Keys of the conditions.
            within_s: Maximum age of the latest occurrence, in seconds.
        """
        since_s = self._clock.monotonic_s() - within_s
        with self._lock:
            return any(key in self._ongoing and self._ongoing[key].met_s >= since_s for key in keys)

    def latest(self) -> Condition | None:
        """Return the condition that began most recently, even if it has ended.

        Returns:
            The condition; None if no condition has begun since the start of the process.
        """
        with self._lock:
            return self._latest

    def _log_end(self, condition: Condition) -> None:
        seconds = condition.met_s - condition.since_s
        _LOG.info(
            "resolved after %.0f s (%d occurrences): %s",
            seconds,
            condition.times,
            condition.message,
        )
