"""Warnings that would repeat: each at most once per interval."""

from __future__ import annotations

import logging
import threading

from hourmark.clock import Clock

_LOG = logging.getLogger(__name__)


class Throttle:
    """Logs a warning unless one of the same key was logged less than `interval_s` ago. Safe to use from several threads."""

    def __init__(self, clock: Clock, interval_s: float = 30.0) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}

    def warn(self, key: str, message: str, level: int = logging.WARNING) -> None:
        """`message` is a whole sentence."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            last_s = self._last.get(key)
            if last_s is not None and now_s - last_s < self._interval_s:
                return
            self._last = {k: v for k, v in self._last.items() if now_s - v < self._interval_s} | {key: now_s}
        _LOG.log(level, "%s", message)
