"""How often all files are scanned, and which files are checked between full scans.

The cost of a full scan grows with the number of files, and a caught-up report depends on one. With
few files there is a full scan every `scan_seconds`. With many, full scans may use `SCAN_SHARE` of a
core, or `URGENT_SHARE` while a drain waits for them, but at least one begins every `SLOWEST_S`
seconds; if a hint or an open question requests one, it begins after a fifth of the interval.
Between full scans only files that changed recently or that a hint named are checked, so files that
are being written are followed without delay.

Pending bytes are also counted without a scan of all files: they grow only by a step of a file or by
an observation that schedules one. So between two full counts it is enough to count files that had
pending bytes and files that were scheduled since.
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

SCAN_SHARE: Final = 0.003
URGENT_SHARE: Final = 0.1
SLOWEST_S: Final = 25.0
RECENT_S: Final = 10.0
RECENT_MAX: Final = 500
_EARLIER: Final = 0.2


class ScanPace:
    """Schedules full scans so that they use a limited share of CPU time.

    A full scan checks all files of all sources. Call all methods in the thread that scans, because
    the CPU time of the calling thread is measured.

    Args:
        clock: Clock of this host.
        scan_seconds: Shortest interval between full scans, in seconds.
    """

    def __init__(self, clock: Clock, scan_seconds: float) -> None:
        self._clock = clock
        self._scan_seconds = scan_seconds
        self._cpu_s = time.thread_time()
        self._began_s = -SLOWEST_S
        self._wait_s = 0.0
        self._wanted = True

    def begin(self) -> None:
        """Record the start of a full scan, and start measuring its CPU time."""
        self._began_s, self._cpu_s = self._clock.monotonic_s(), time.thread_time()
        self._wanted = False

    def end(self, *, is_urgent: bool) -> None:
        """Record the end of a full scan, and calculate the interval until the next one.

        The more CPU time the scan used, the longer the interval.

        Args:
            is_urgent: Whether scans may use 10 % of a core (`URGENT_SHARE`) instead of 0.3 %
                (`SCAN_SHARE`), for example while the tailer delivers all data before it exits.
        """
        took_s, share = time.thread_time() - self._cpu_s, URGENT_SHARE if is_urgent else SCAN_SHARE
        self._wait_s = max(self._scan_seconds, min(took_s / share, SLOWEST_S))

    @property
    def is_slow(self) -> bool:
        """Return whether the interval between full scans is longer than `scan_seconds`.

        If so, it is useful to watch folders for changes between scans.
        """
        return self._wait_s > self._scan_seconds

    def request_scan(self) -> None:
        """Request that the next full scan begins early, after a fifth of the usual interval.

        Call this method when a change requires a full scan. The request applies to one scan only.
        """
        self._wanted = True

    def is_due(self) -> bool:
        """Return whether the next full scan should begin now. Call it every `scan_seconds`."""
        wait_s = max(self._scan_seconds, self._wait_s * _EARLIER) if self._wanted else self._wait_s
        return self._clock.monotonic_s() - self._began_s >= wait_s - self._scan_seconds / 2


class PartialScans:
    """Selects recently changed files, which are checked between two full scans.

    Call `begin` after each full scan, and `select_files` before each partial scan. Not thread-safe.

    Args:
        clock: Clock of this host.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_path: dict[str, TrackedFile] = {}
        self._recent: set[TrackedFile] = set()

    def begin(self, files: Iterable[TrackedFile]) -> None:
        """Select the files that changed within the last `RECENT_S` (10) seconds.

        Call this method after each full scan. It selects at most `RECENT_MAX` (500) files, most
        recently changed first.

        Args:
            files: All tracked files.
        """
        files = list(files)
        self._by_path = {
            path: file for file in files for path in (file.target, file.place.seen_at) if path
        }
        since_s = self._clock.monotonic_s() - RECENT_S
        recent = (file for file in files if file.changed_at_s >= since_s and not file.is_gone)
        self._recent = set(heapq.nlargest(RECENT_MAX, recent, key=lambda file: file.changed_at_s))

    def folders(self) -> set[str]:
        """Return the absolute paths of the folders that contain tracked files.

        Watch them for changes between full scans.
        """
        return {path.rpartition("/")[0] or "/" for path in self._by_path}

    def select_files(self, written: Iterable[str]) -> set[TrackedFile]:
        """Return the files to check in the next partial scan.

        Args:
            written: Paths of files that inotify reported as written to.

        Returns:
            The files that changed recently, and the tracked files in `written`.
        """
        since_s = self._clock.monotonic_s() - RECENT_S
        self._recent = {file for file in self._recent if file.changed_at_s >= since_s}
        hinted = {file for path in written if (file := self._by_path.get(path)) is not None}
        self._recent |= set(list(hinted)[: max(0, RECENT_MAX - len(self._recent))])
        return self._recent | hinted


class PendingBytes:
    """Counts the unacknowledged bytes of all files without visiting every file.

    Bytes are acknowledged when a delivery service confirms that they are stored. Only files that
    may have unacknowledged bytes are visited. Thread-safe.

    Args:
        files: Files that may have unacknowledged bytes at the start.
        schedule: Queue of files. Files that are added to the queue are also visited.
    """

    def __init__(self, files: Iterable[TrackedFile], schedule: Schedule) -> None:
        self._lock = threading.Lock()
        self._schedule = schedule
        self._some = set(files)  # that have something pending, or may have

    def update(self, active_files: Iterable[TrackedFile]) -> None:
        """Update the set of files that may have unacknowledged bytes.

        Call this method after each full scan.

        Args:
            active_files: All files that changed or that are not completely acknowledged.
        """
        with self._lock:
            touched = self._schedule.scheduled_files(reset=True)
            self._some = touched | {file for file in active_files if file.pending_bytes}

    def by_source(self) -> Counter[str]:
        """Return the number of unacknowledged bytes of each source.

        Returns:
            Maps each source name to its number of bytes. A source without unacknowledged bytes is
            absent or 0.
        """
        found = Counter[str]()
        for file in self._asked():
            found[file.place.source] += file.pending_bytes
        return found

    def total(self) -> int:
        """Return the number of unacknowledged bytes of all sources."""
        return self.by_source().total()

    def is_in_flight(self) -> bool:
        """Return whether any byte range is stored for sending and not acknowledged yet."""
        return any(file.progress.in_flight for file in self._asked())

    def _asked(self) -> set[TrackedFile]:
        with self._lock:
            return self._some | self._schedule.scheduled_files()
