"""How many bytes are pending, without a look at every file for each report.

What is pending of a file grows only by a step of it, or by an observation that asks for one. So between two counts of all files
it is enough to ask those that had something pending, and those that the schedule has touched since.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from hourmark_producer.files import TrackedFile
from hourmark_producer.schedule import Schedule


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
