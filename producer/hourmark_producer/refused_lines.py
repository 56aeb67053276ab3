"""Lines that the service made dead letters of: told at once, as a mistyped source or field sends whole files there.

Each source and reason is told when it begins, and again when other rules are in force, as somebody may have tried to mend it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final

from hourmark.dead_letters import Reason
from hourmark.ranges import ByteRange

_LOG = logging.getLogger(__name__)

_REASONS_MAX: Final = 100  # of a source: no service has as many


class RefusedLines:
    """Counts and tells them. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}
        self._told: dict[tuple[str, str], str] = {}  # by source and reason: the rules they were told under

    def take(self, of: ByteRange, reasons: Mapping[str, int]) -> None:
        """What an answer said of this range."""
        for reason, count in reasons.items():
            if self._is_new(of, reason, count):
                _LOG.warning(
                    "source %s: lines become dead letters: %d %s in %s from byte %d on, under the rules %s. %s",
                    of.source, count, reason, of.path, of.start, of.rules, _next_step(of.source, reason),
                )  # fmt: skip

    def counts(self) -> dict[str, dict[str, int]]:
        """By source and reason, since the start."""
        with self._lock:
            return {source: dict(counts) for source, counts in sorted(self._counts.items())}

    def _is_new(self, of: ByteRange, reason: str, count: int) -> bool:
        with self._lock:
            counts = self._counts.setdefault(of.source, Counter())
            if reason not in counts and len(counts) >= _REASONS_MAX:
                return False
            counts[reason] += count
            before = self._told.get((of.source, reason))
            self._told[of.source, reason] = of.rules
            return before != of.rules


def _next_step(source: str, reason: str) -> str:
    if reason == Reason.UNKNOWN_SOURCE.value:
        return (
            f"No rules in force declare a source {source}: is its name in tailer.sources mistyped? If not, declare it and "
            "`hourmark types apply`; `hourmark types list` shows those in force"
        )
    return f"`hourmark dead-letters show --source {source} --reason {reason}` shows them, at a host that reaches Kafka"
