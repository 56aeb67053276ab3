"""Open files are a budget: some of what the system grants is the network's and the checkpoint's,
the rest is files' in turn.

A file that is held open is followed whatever becomes of its name, so all are held while they may
be. Where there are more, those that are read to their end are let go first, those that changed last
come last; then those that were held longest, read or not: else files that are always busy, or whose
ranges are refused, would keep all others waiting for ever. A file that was let go is opened again
when it is its turn.
"""

from __future__ import annotations

import dataclasses
import resource
from typing import Final

from hourmark.clock import Clock
from hourmark.errors import ConfigError
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import Files, TrackedFile

# connections, one a sender and some; the checkpoint; standard streams; what Python opens for a
# moment
RESERVE: Final = 64
FILES_MIN: Final = 8  # a turn each for as many as there are senders
_FILES_MAX: Final = 65_536
_TURN_S: Final = 1.0


def granted() -> int:
    """How many files may be held open, of as many as the system grants; ConfigError where that is
    next to none.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < RESERVE + FILES_MIN:
        raise ConfigError(
            f"this process may open {wanted} files at once; allowed: "
            f"{RESERVE + FILES_MIN} and more (LimitNOFILE, ulimit -n)"
        )
    return wanted - RESERVE


@dataclasses.dataclass(kw_only=True)
class Descriptors:
    """Gives them out, and takes them back. Used by the scanning thread."""

    files: Files
    schedule: Schedule
    clock: Clock
    limit: int

    def __post_init__(self) -> None:
        self._held = 0
        self._spent = False

    def begin(self) -> None:
        """A scan begins: who needs none any more may have been found meanwhile."""
        self._held = sum(file.descriptor is not None for file in self.files)
        self._spent = False

    def room(self) -> bool:
        """Whether one more may be held; lets go of files that are read to their end where that
        makes room.
        """
        if self._held >= self.limit and not self._spent:
            read = [
                file
                for file in self._held_files()
                if file.is_settled and file.progress.position.offset == file.observed.size
            ]
            self._spent = not self._close(
                sorted(read, key=lambda file: file.changed_at_s)[: self._some]
            )
        return self._held < self.limit

    def turns(self, waiting: list[TrackedFile]) -> list[TrackedFile]:
        """Those of the waiting whose turn it is now: who held none for longest.

        Those that held theirs for longest make room.
        """
        wanted = min(len(waiting), self._some)
        if wanted and not self.room():
            before_s = self.clock.monotonic_s() - _TURN_S
            had_theirs = [file for file in self._held_files() if file.held_since_s <= before_s]
            self._close(sorted(had_theirs, key=lambda file: file.held_since_s)[:wanted])
        return sorted(waiting, key=lambda file: file.held_since_s)[
            : max(0, self.limit - self._held)
        ]

    def hold(self, file: TrackedFile, descriptor: int) -> None:
        """It is this file's from now on."""
        file.descriptor, file.held_since_s = descriptor, self.clock.monotonic_s()
        self._held += 1

    def give_back(self, file: TrackedFile) -> None:
        """There was no room for it: it was opened to see which file it is."""
        file.close()
        self._held -= 1

    @property
    def _some(self) -> int:
        """A tenth at once, because looking for them takes time."""
        return max(1, self.limit // 10)

    def _held_files(self) -> list[TrackedFile]:
        """Without those that could not be opened again."""
        return [file for file in self.files if file.descriptor is not None and not file.deleted]

    def _close(self, files: list[TrackedFile]) -> int:
        closed = sum(self.schedule.unless_busy(file, file.close) for file in files)
        self._held -= closed
        return closed
