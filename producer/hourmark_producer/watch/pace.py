"""How often a host is scanned as a whole, and the bytes that are pending between two scans.

How often a host is looked at as a whole, and what is looked at in between.

A full look costs by the number of files, and a claim of caught_up rests on one. With few files
there is one every `scan_seconds`. With many, full looks together may take LOOK_SHARE of a core, but
there is one every SLOWEST_S at the latest; where a hint or an open question asks for one, after a
fifth of that. Claims follow that pace, and stay true. In between only files are looked at that
changed a moment ago or that a hint named: so what is written to is followed as before.

How many bytes are pending, without a look at every file for each report.

What is pending of a file grows only by a step of it, or by an observation that asks for one. So
between two counts of all files it is enough to ask those that had something pending, and those that
the schedule has touched since.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from hourmark.clock import Clock
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import TrackedFile

LOOK_SHARE: Final = 0.003
SLOWEST_S: Final = 25.0
RECENT_S: Final = 10.0
RECENT_MAX: Final = 500
_EARLIER: Final = 0.2


class Pace:
    """When the next full look is due. Used by the scanning thread, whose CPU it counts."""

    def __init__(self, clock: Clock, scan_seconds: float) -> None:
        self._clock = clock
        self._scan_seconds = scan_seconds
        self._cpu_s = time.thread_time()
        self._began_s = -SLOWEST_S
        self._wait_s = 0.0
        self._wanted = True

    def begin(self) -> None:
        """A full look begins."""
        self._began_s, self._cpu_s = self._clock.monotonic_s(), time.thread_time()
        self._wanted = False

    def end(self, *, is_urgent: bool) -> None:
        """It has ended. `is_urgent`: the next is to follow whatever it costs."""
        took_s = time.thread_time() - self._cpu_s
        self._wait_s = (
            self._scan_seconds
            if is_urgent
            else max(self._scan_seconds, min(took_s / LOOK_SHARE, SLOWEST_S))
        )

    @property
    def is_slow(self) -> bool:
        """Whether something happens between full looks: only then are hints worth their price."""
        return self._wait_s > self._scan_seconds

    def want(self) -> None:
        """There is reason for an earlier one."""
        self._wanted = True

    def is_due(self) -> bool:
        """Whether it is time for a full look, when asked every `scan_seconds`."""
        wait_s = max(self._scan_seconds, self._wait_s * _EARLIER) if self._wanted else self._wait_s
        return self._clock.monotonic_s() - self._began_s >= wait_s - self._scan_seconds / 2


class Glances:
    """Which files are looked at between two full looks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_path: dict[str, TrackedFile] = {}
        self._recent: set[TrackedFile] = set()

    def begin(self, files: Iterable[TrackedFile]) -> None:
        """After a full look."""
        files = list(files)
        self._by_path = {
            path: file for file in files for path in (file.target, file.place.seen_at) if path
        }
        since_s = self._clock.monotonic_s() - RECENT_S
        recent = (file for file in files if file.changed_at_s >= since_s and not file.is_gone)
        self._recent = set(heapq.nlargest(RECENT_MAX, recent, key=lambda file: file.changed_at_s))

    def folders(self) -> set[str]:
        """Where files are that a hint may name."""
        return {path.rpartition("/")[0] or "/" for path in self._by_path}

    def next(self, written: Iterable[str]) -> set[TrackedFile]:
        """Whose turn it is, with those at these paths."""
        since_s = self._clock.monotonic_s() - RECENT_S
        self._recent = {file for file in self._recent if file.changed_at_s >= since_s}
        hinted = {file for path in written if (file := self._by_path.get(path)) is not None}
        self._recent |= set(list(hinted)[: max(0, RECENT_MAX - len(self._recent))])
        return self._recent | hinted


class PendingBytes:
    """Counted by the scanning thread, asked by any."""

    def __init__(self, files: Iterable[TrackedFile], schedule: Schedule) -> None:
        self._lock = threading.Lock()
        self._schedule = schedule
        self._some = set(files)  # that have something pending, or may have

    def count(self, astir: Iterable[TrackedFile]) -> None:
        """After a full look, which found all others at rest."""
        with self._lock:
            touched = self._schedule.touched(forget=True)
            self._some = touched | {file for file in astir if file.pending_bytes}

    def by_source(self) -> Counter[str]:
        """Of all files."""
        found = Counter[str]()
        for file in self._asked():
            found[file.place.source] += file.pending_bytes
        return found

    def is_in_flight(self) -> bool:
        """Whether a range of any file is on its way."""
        return any(file.progress.in_flight for file in self._asked())

    def _asked(self) -> set[TrackedFile]:
        with self._lock:
            return self._some | self._schedule.touched()
