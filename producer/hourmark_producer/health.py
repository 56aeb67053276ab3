"""Whether a tailer is well: it looks at its files, its checkpoint takes what it writes, services hear it and take what waits."""

from __future__ import annotations

import threading
from typing import Final

from hourmark.clock import Clock
from hourmark_producer.throttle import Throttle

CHECKPOINT_KEYS: Final = ("scan", "CheckpointFailed")  # of conditions: the checkpoint cannot be written
_MET_WITHIN_S: Final = 30.0


class Health:
    """What is asked from outside, from what the tailer's threads tell it. Safe to use from several threads.

    `unwell_s`: how long something may be at a standstill.
    """

    def __init__(self, clock: Clock, conditions: Throttle, unwell_s: float) -> None:
        self._clock = clock
        self._conditions = conditions
        self._unwell_s = unwell_s
        self._lock = threading.Lock()
        self._scanned_s = self._reported_s = self._moved_s = clock.monotonic_s()
        self._ranges = 0

    def scanned(self, ranges: int, *, waiting: bool) -> None:
        """There was a look at files. `ranges`: acknowledged so far; `waiting`: whether there is one that is not."""
        with self._lock:
            self._scanned_s = self._clock.monotonic_s()
            if not waiting or ranges != self._ranges:
                self._ranges, self._moved_s = ranges, self._scanned_s

    def reported(self) -> None:
        """A host report arrived."""
        with self._lock:
            self._reported_s = self._clock.monotonic_s()

    def reasons(self) -> list[str]:
        """Why it is not well; none where it is."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            standstills = (
                (self._scanned_s, "files were not looked at, or what was found could not be written down,"),
                (self._reported_s, "no host report arrived at a delivery service"),
                (self._moved_s, "nothing was acknowledged, though something is on its way,"),
            )
            found = [f"{what} for {now_s - at_s:.0f} s" for at_s, what in standstills if now_s - at_s > self._unwell_s]
        if self._conditions.was_met(CHECKPOINT_KEYS, _MET_WITHIN_S):
            found.append("the checkpoint cannot be written: is the disk full?")
        return found
