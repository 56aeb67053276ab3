"""Sees to it that the watch looks. A look that does not end is an alarm within the minute, and at last the end of the process.

A client of Kafka may wait for ever for threads of its own (`hourmark.ending`), and nothing ends a thread of Python from outside.
Whoever supervises the watch starts it anew, and alarms that stand are remembered.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from hourmark_mirror.watching import UNWATCHED_S, Watch

_LOG = logging.getLogger(__name__)

PAUSE_S: Final = 5.0
STUCK_S: Final = 600.0  # far more than a look takes that waits for brokers again and again


def _end() -> None:
    os._exit(1)  # what stands still is in the way of any other end


class Overseer:
    """Of one watch, in a thread of its own."""

    def __init__(self, watch: Watch, end: Callable[[], None] = _end) -> None:
        self._watch, self._end = watch, end

    def start(self, stopping: threading.Event) -> None:
        """Begin; until it is set."""
        threading.Thread(target=self._run, args=(stopping,), name="overseer", daemon=True).start()

    def see(self) -> None:
        """Whether a look goes on for too long, now."""
        going_on_s = self._watch.going_on_s
        if going_on_s >= STUCK_S:
            _LOG.critical("a look at the mirror has not ended for %.0f s; the watch ends, and must be started again", going_on_s)
            self._end()
        elif going_on_s >= UNWATCHED_S:
            self._watch.miss(f"a look has not ended for {going_on_s:.0f} s")

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(PAUSE_S):
            self.see()
