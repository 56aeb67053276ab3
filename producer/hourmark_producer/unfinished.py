"""Packed files without an end: still being written, or cut off. Which one, only time tells; whoever asks next goes on waiting."""

from __future__ import annotations

import os
from typing import Final

from hourmark.clock import Clock

_KNOWN_MAX: Final = 256


class Unfinished:
    """By inode: how it was when it was looked at first, and since when it is so. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[int, int], tuple[tuple[int, int], float]] = {}

    def unchanged_s(self, status: os.stat_result) -> float:
        """How long it has been as it is, as far as anybody looked."""
        now_s, key, stamp = self._clock.monotonic_s(), (status.st_dev, status.st_ino), (status.st_size, status.st_mtime_ns)
        before, since_s = self._known.pop(key, (stamp, now_s))
        since_s = since_s if before == stamp else now_s
        self._known[key] = stamp, since_s
        for oldest in list(self._known)[:-_KNOWN_MAX]:
            self._known.pop(oldest, None)
        return now_s - since_s
