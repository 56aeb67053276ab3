"""Warnings that would repeat: each at most once per interval."""

from __future__ import annotations

import logging
import threading
from typing import Final

from hourmark.clock import Clock

INTERVAL_S: Final = 30.0
_LOG = logging.getLogger(__name__)


class Throttle:
    """Logs a warning unless one of the same key was logged less than INTERVAL_S ago. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}

    def warn(self, key: str, message: str, level: int = logging.WARNING) -> None:
        """`message` is a whole sentence."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if now_s - self._last.get(key, -INTERVAL_S) < INTERVAL_S:
                return
            self._last = {k: v for k, v in self._last.items() if now_s - v < INTERVAL_S} | {key: now_s}
        _LOG.log(level, "%s", message)
