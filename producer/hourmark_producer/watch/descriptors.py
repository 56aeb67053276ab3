"""The budget of open files.

Part of the descriptors that the system grants is reserved for the network and the checkpoint; the
rest is shared by tracked files. An open file can be followed whatever happens to its name, so as
many as possible are kept open. If there are more files, completely read ones are closed first, the
least recently changed of them first. Then those that were open longest are closed, read or not:
otherwise files that are always busy, or whose ranges are rejected, would block all others. A closed
file is opened again when it is its turn.
"""

from __future__ import annotations

import dataclasses
import resource
from typing import Final

from hourmark.clock import Clock
from hourmark.errors import ConfigError
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import TrackedFile, TrackedFiles

# connections, one a sender and some; the checkpoint; standard streams; what Python opens for a
# moment
RESERVE: Final = 64
FILES_MIN: Final = 8  # a turn each for as many as there are senders
_FILES_MAX: Final = 65_536
_TURN_S: Final = 1.0


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files (RLIMIT_NOFILE) of this process to the hard limit.

    The soft limit is set to at most 65,536.

    Returns:
        The number of log files that may be open at the same time. 64 descriptors are reserved for
        other purposes.

    Raises:
        ConfigError: The hard limit is lower than `RESERVE` + `FILES_MIN` (72). Increase
            `LimitNOFILE` or `ulimit -n`.
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
class DescriptorBudget:
    """Limits the number of open log files, and decides which files stay open.

    Not thread-safe.

    Attributes:
        files: All tracked files.
        schedule: Queue of files. A file that is assigned to a worker is not closed.
        clock: Clock that measures for how long files have been open.
        limit: Maximum number of open files.
    """

    files: TrackedFiles
    schedule: Schedule
    clock: Clock
    limit: int

    def __post_init__(self) -> None:
        self._held = 0
        self._spent = False

    def begin(self) -> None:
        """Recount the open files. Call this method before you open a series of files."""
        self._held = sum(file.descriptor is not None for file in self.files)
        self._spent = False

    def can_open_another(self) -> bool:
        """Return whether another file may be opened.

        If the limit is reached, the method first closes some files that were read completely.
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

    def select_to_open(self, waiting: list[TrackedFile]) -> list[TrackedFile]:
        """Select the files that may be opened now.

        Files that were opened longest ago are selected first. If the limit is reached, the method
        closes the files that have been open longest, but only if they have been open for at least
        one second.

        Args:
            waiting: Closed files that have unread bytes.

        Returns:
            The files to open; empty if the limit is reached and no file could be closed.
        """
        wanted = min(len(waiting), self._some)
        if wanted and not self.can_open_another():
            before_s = self.clock.monotonic_s() - _TURN_S
            had_theirs = [file for file in self._held_files() if file.opened_at_s <= before_s]
            self._close(sorted(had_theirs, key=lambda file: file.opened_at_s)[:wanted])
        return sorted(waiting, key=lambda file: file.opened_at_s)[: max(0, self.limit - self._held)]

    def assign(self, file: TrackedFile, descriptor: int) -> None:
        """Assign an open file descriptor to a tracked file, and count the file as open.

        Args:
            file: The file, which has no descriptor yet.
            descriptor: File descriptor, open for reading. The file takes ownership.
        """
        file.descriptor, file.opened_at_s = descriptor, self.clock.monotonic_s()
        self._held += 1

    def close_excess(self, file: TrackedFile) -> None:
        """Close a file that was opened although the limit was reached.

        Such a file is opened only to identify it and to read its first bytes.

        Args:
            file: A file to which `assign` gave a descriptor. It no longer counts as open.
        """
        file.close()
        self._held -= 1

    @property
    def _some(self) -> int:
        return max(1, self.limit // 10)

    def _held_files(self) -> list[TrackedFile]:
        return [file for file in self.files if file.descriptor is not None and not file.deleted]

    def _close(self, files: list[TrackedFile]) -> int:
        closed = sum(self.schedule.run_unless_busy(file, file.close) for file in files)
        self._held -= closed
        return closed
